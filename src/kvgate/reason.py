"""Why a verdict is what it is: a code with figures, said in English or Chinese.

Verdicts carry codes, not sentences, so that one verdict reads the same in both languages and a
machine can count reasons. Every sentence that a reader sees about a judgement stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kvgate.causes import CAUSES

Param: TypeAlias = "str | int | float | Reason | None"
"""A figure, a name, or the cause of the reason: a reason of its own."""

TEXTS: Final[Mapping[str, tuple[str, str]]] = {
    **CAUSES,
    # clause reasons
    "met": ("requirement met", "满足要求"),
    "below_threshold": (
        "{value} misses the threshold {threshold}; even the favourable end of the interval, "
        "{bound}, misses it",
        "{value} 未达到门限 {threshold}；区间的有利端 {bound} 也未达到",
    ),
    "out_of_limit": ("{value} is outside the limit {threshold}", "{value} 不符合限值 {threshold}"),
    "not_the_appliances": (
        "{value} is outside the limit {threshold}, but nothing shows that the appliance is to "
        "blame ({because})",
        "{value} 不符合限值 {threshold}，但没有证据表明责任在设备（{because}）",
    ),
    "run_spoiled": (
        "the long run broke the conditions {conditions}: it measured something else",
        "长时运行不满足有效性条件 {conditions}：所测并非所求",
    ),
    "not_equal": ("found {value}, required {threshold}", "实测 {value}，要求 {threshold}"),
    "open": (
        "after {n} pairs the interval {interval} still leaves both open, met and not met",
        "{n} 对测量后，区间 {interval} 仍不能区分达标与否",
    ),
    "estimate_short": (
        "the interval is good enough but the estimate {value} lies below the threshold {threshold}",
        "区间满足要求，但估计值 {value} 低于门限 {threshold}",
    ),
    # why there is no verdict
    "no_value": ("{metric} at {where} was not measured", "{where} 的 {metric} 未测得"),
    "no_value_because": (
        "{metric} at {where} was not measured ({detail})",
        "{where} 的 {metric} 未测得（{detail}）",
    ),
    "reports": (
        "{metric}: {n} reports from {where}, one is wanted",
        "{metric}：{where} 有 {n} 份报告，应为一份",
    ),
    "no_valid_block": (
        "{metric}: no valid block of {where}",
        "{metric}：{where} 没有有效测量块",
    ),
    "few_valid_blocks": (
        "{metric} at {where}: {n} valid blocks of at least {needed}",
        "{where} 的 {metric}：有效测量块 {n} 个，至少需要 {needed} 个",
    ),
    "blocks_excluded": (
        "{share} of the {where} blocks of the {arm} arm were excluded, at most {limit} allowed",
        "{arm}的 {where} 测量块有 {share} 被剔除，上限为 {limit}",
    ),
    "blocks_lack_value": (
        "{metric} at {where}: {n} blocks lack a value",
        "{where} 的 {metric}：{n} 个测量块缺少数值",
    ),
    "other_kind": (
        "{metric} at {where} is a text where the contract has a number, or the reverse",
        "{where} 的 {metric} 与合同的数值类型不符（文本与数字）",
    ),
    "few_answers": (
        "{n} of at least {needed} answers could be compared",
        "可比较的回答 {n} 个，至少需要 {needed} 个",
    ),
    "no_answer_floor": (
        "the engine's agreement with itself was not measured: no probe was recomputed twice",
        "未测得引擎自身的一致性：没有探针重算两次",
    ),
    "few_healthy_pairs": (
        "{n} of at least {needed} pairs have a healthy reference",
        "参考组正常的测量对 {n} 对，至少需要 {needed} 对",
    ),
    "few_healthy_pairs_in": (
        "{where}: {n} of at least {needed} pairs have a healthy reference",
        "{where}：参考组正常的测量对 {n} 对，至少需要 {needed} 对",
    ),
    "plain_setup": ("the plain setup", "默认部署"),
    "failures_unclear": (
        "{share} of the requests failed; the pairs do not tell whose fault it was",
        "{share} 的请求失败；测量对不能说明责任归属",
    ),
    "pair_repeated": (
        "{where}: more than one block stands for pair {pair}",
        "{where}：第 {pair} 对有多于一个测量块",
    ),
    "no_interval": (
        "{metric} {statistic} has no interval: {cause}",
        "{metric} {statistic} 无区间：{cause}",
    ),
    "block_copied": (
        "block {block} holds the very stamps of block {original}: it was copied, not measured",
        "测量块 {block} 的时间戳与测量块 {original} 完全相同：系复制，而非实测",
    ),
    "blocks_missing": (
        "block {block} is not there ({n} missing): evidence was removed",
        "缺少测量块 {block}（共缺 {n} 个）：证据被移除",
    ),
    "too_few_pairs": (
        "only {n} valid pairs of at least {needed}; broken: {conditions}",
        "有效测量对仅 {n} 对，至少需要 {needed} 对；未成立的条件：{conditions}",
    ),
    "too_many_exclusions": (
        "{share} of the {arm} blocks were excluded, at most {limit} allowed; broken: {conditions}",
        "{arm}有 {share} 的测量块被剔除，上限为 {limit}；未成立的条件：{conditions}",
    ),
    "not_a_number": (
        "{metric} at {where} is not a finite number",
        "{where} 的 {metric} 不是有限数值",
    ),
    "not_selected": (
        "the clause was not selected in this run",
        "本次运行未选中该条款",
    ),
    "wrong_answers": (
        "{count} of {n} answers differ from the recompute arm beyond the tolerance {tolerance}",
        "{n} 个回答中有 {count} 个与重算组的差异超出容差 {tolerance}",
    ),
    "wrong_answers_unclear": (
        "{count} of {n} answers are wrong in blocks that restored nothing or lost engine or "
        "client; the cause cannot be told",
        "在未恢复或引擎、客户端中断的测量块中，{n} 个回答有 {count} 个错误，原因无法判定",
    ),
    "arms_differ": (
        "the arms differ in more than the store: {what} is {value} in {arm} and {found} in {other}",
        "两组之间除存储外还有差异：{what} 在 {arm} 组为 {value}，在 {other} 组为 {found}",
    ),
    "engine_not_told": (
        "the {arm} arm does not tell which engine build it ran; nobody knows that both arms ran "
        "the same",
        "{arm} 组未说明所用引擎版本，无法确认两组引擎相同",
    ),
    "failures_open": (
        "{count} of {n} requests failed; that is above {limit} and chance may explain it",
        "{n} 个请求中 {count} 个失败，高于 {limit}，但可能出于偶然",
    ),
    "answers_without_reference": (
        "{count} answers have no recomputed reference to be compared with",
        "{count} 个回答没有可对照的重算基准",
    ),
    "probe_block_at_fault": (
        "the appliance spoiled probe blocks (broken: {conditions}); right answers of the others "
        "are not enough",
        "设备自身使部分探测块无效（未成立：{conditions}），其余回答正确仍不足以判定",
    ),
    "engine_disagrees_with_itself": (
        "the engine disagrees with itself in {count} of {n} answers; nothing can be said about the "
        "appliance",
        "引擎自身重复运行有 {count}/{n} 个回答不一致，无法评价设备",
    ),
    "appliance_errors": (
        "{count} of {n} requests failed on the appliance ({kinds}) while the paired {reference} "
        "blocks were healthy",
        "设备组 {n} 个请求中 {count} 个失败（{kinds}），而配对的{reference}正常",
    ),
    "appliance_at_fault": (
        "in {count} of {n} pairs only the appliance was at fault (broken: {conditions}) while the "
        "{reference} arm was healthy",
        "{n} 对中有 {count} 对仅设备存在问题（未成立：{conditions}），而{reference}正常",
    ),
    "errors_everywhere": (
        "requests failed in both arms ({kinds}); the cause is not the appliance alone",
        "两组均有请求失败（{kinds}），原因不能归于设备",
    ),
    "effect_in_same_arm": (
        "one arm against itself shows {value}, interval {interval}, allowed within {threshold}",
        "同一组自身对比出现 {value}，区间 {interval}，允许范围 {threshold}",
    ),
    "interrupted_not_repeated": (
        "an interruption broke off {where}, and it was not measured again ({n} such blocks)",
        "中断使 {where} 未测完，且未重新测量（此类测量块 {n} 个）",
    ),
    "interruption_matters": (
        "what an interruption broke off would have led to another verdict than what was measured "
        "in its place; more pairs must decide",
        "被中断的测量与其后重测所得结论不一致，需由更多测量对决定",
    ),
    "too_many_interruptions": (
        "the run was interrupted {n} times, the contract grants {granted}",
        "本次运行中断 {n} 次，合同只允许 {granted} 次",
    ),
    "end_not_borne_out": (
        "the run says that it was measured to its end, and its {n} whole pairs do not bear that "
        "out: it was broken off, and a person must act",
        "运行记录称已测至结束，但其 {n} 对完整测量不足以证实：实为中断，需人工处理",
    ),
    # gate reasons
    "all_clauses_met": ("all {n} clauses are met", "全部 {n} 项条款均满足"),
    "clauses_decide": ("{verdict} because of {clauses}", "结论为{verdict}，依据条款 {clauses}"),
    # decision reasons
    "next_gate": ("the next gate may open", "可进入下一门禁"),
    "campaign_complete": ("the last gate is passed", "最后一道门禁已通过"),
    "stop": ("the contract grants no further retest", "合同不再给予复测机会"),
    "retest_left": ("the contract grants {n} more retest(s)", "合同还允许 {n} 次复测"),
    "extend": (
        "{pairs} of at most {max_pairs} pairs measured; measure more",
        "已测 {pairs} 对，上限 {max_pairs} 对；继续加测",
    ),
    "limit_reached": (
        "{max_pairs} pairs are the contract's limit; the contract says {decision}",
        "已达合同上限 {max_pairs} 对；合同规定：{decision}",
    ),
    "rerun": (
        "the measurement was at fault; rerun {used} of {limit}",
        "测量本身存在问题；第 {used}/{limit} 次重跑",
    ),
    "rerun_limit": (
        "the measurement was at fault and its {limit} reruns are used; a person must act",
        "测量本身存在问题且 {limit} 次重跑已用尽；需人工处理",
    ),
    "proceed_under_waiver": (
        "PROCEED under waiver: {clauses} not met and let go by {parties}; no clause became a PASS "
        "by it",
        "凭豁免放行：{clauses} 未满足，由 {parties} 签署豁免；相关条款并未因此转为 PASS",
    ),
    "deadline_missed": (
        "begun {n} day(s) after the gate's deadline, day {deadline}; the contract says {decision} "
        "(a signed waiver of {word} would lift that)",
        "本次运行晚于该门禁期限（第 {deadline} 天）{n} 天；合同规定：{decision}"
        "（签署 {word} 的豁免可解除）",
    ),
    "reopened": (
        "{where} changed from {before} to {after}: for a change of {kind} the contract reopens "
        "G{gate}, which must be run again first",
        "{where} 由 {before} 变为 {after}：合同规定 {kind} 变更须从 G{gate} 重新开始",
    ),
    "does_not_count": (
        "this run does not count ({mode}); no decision follows from it",
        "本次运行不计入（{mode}），不产生决定",
    ),
    # findings
    "changed": (
        "{where} ({kind}) changed since G{gate}: {before} -> {after}; the contract reopens "
        "{reopens} for that",
        "{where}（{kind}）自 G{gate} 以来变更：{before} -> {after}；合同规定重新开启：{reopens}",
    ),
    "waived_before": (
        "G{gate} proceeded under waiver of {clauses}",
        "G{gate} 凭 {clauses} 的豁免放行",
    ),
    "waiver_without_effect": (
        "the waiver of {clause} by {party} has no effect: {why}",
        "{party} 对 {clause} 的豁免无效：{why}",
    ),
    "gone_on": (
        "the run was interrupted {n} times and gone on with at the next session: whole pairs were "
        "kept, {blocks} blocks of broken sessions are excluded and were measured anew",
        "本次运行中断 {n} 次，之后从下一会话继续：完整测量对保留，"
        "未完成会话的 {blocks} 个测量块已剔除并重新测量",
    ),
    "above_band": (
        "{where}: gain {value} lies above the band's top {top}: investigate the baseline (its read "
        "rate, its cache, its software build)",
        "{where}：增益 {value} 高于区间上限 {top}：请检查基线（读取速率、缓存、软件版本）",
    ),
    "robust_disagrees": (
        "{where}: the robust estimate {value} and the mean disagree",
        "{where}：稳健估计 {value} 与均值不一致",
    ),
    "lag1": (
        "{where}: neighbouring pairs are correlated (lag-1 {value})",
        "{where}：相邻测量对存在相关（一阶 {value}）",
    ),
    "drift": (
        "{where}: the effect drifts by {value} a pair",
        "{where}：效应随测量对漂移，每对 {value}",
    ),
    "order_effect": (
        "{where}: the order of the arms matters ({value})",
        "{where}：两组先后顺序有影响（{value}）",
    ),
    "one_piece_of_evidence": (
        "in a closed loop TTFT is nearly level / throughput: the clauses on TTFT and throughput "
        "are one piece of evidence, not two",
        "闭环负载下 TTFT 约等于 并发数/吞吐：首字延迟与吞吐两项条款实为同一份证据",
    ),
    "speedup": (
        "{where}: TTFT p50 {reference} s recomputed, {value} s restored, {ratio} times faster "
        "(information only)",
        "{where}：重算 TTFT p50 {reference} 秒，恢复后 {value} 秒，快 {ratio} 倍（仅供参考）",
    ),
    "token_cost": (
        "{where}: a million output tokens cost {reference} {currency} on the reference arm, "
        "{value} {currency} on the tested one, at {hour} {currency} an hour of the platform "
        "(information only)",
        "{where}：每百万输出词元成本：参考组 {reference} {currency}，受测组 {value} {currency}，"
        "按平台每小时 {hour} {currency} 计（仅供参考）",
    ),
    "token_energy": (
        "{where}: an output token takes {reference} J on the reference arm, {value} J on the "
        "tested one, by the inventory's meters (information only)",
        "{where}：每个输出词元能耗：参考组 {reference} 焦耳，受测组 {value} 焦耳，"
        "依据清单中的电表（仅供参考）",
    ),
    "pair_noise": (
        "{where}: sd of a pair's log ratio {value} (plans G3)",
        "{where}：单对对数比标准差 {value}（用于规划 G3）",
    ),
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A code of :data:`TEXTS` with the figures its sentence needs, already formatted."""

    code: str
    params: Mapping[str, Param] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.code not in TEXTS:
            raise KeyError(f"reason code {self.code!r} has no text")

    def text(self, lang: str = "en") -> str:
        """The sentence in ``lang`` ("en" or "zh")."""
        said = {
            key: value.text(lang) if isinstance(value, Reason) else value
            for key, value in self.params.items()
        }
        return TEXTS[self.code][1 if lang == "zh" else 0].format(**said)

    def __str__(self) -> str:
        return self.text()

    @classmethod
    def of(cls, plain: object) -> Reason | None:
        """What a piece of evidence gives as ``{"code": ..., "params": {...}}``; None where that is
        no reason that this version can say."""
        if not isinstance(plain, Mapping) or not isinstance(plain.get("params"), Mapping):
            return None
        code, params = plain.get("code"), plain["params"]
        if (
            not isinstance(code, str)
            or code not in TEXTS
            or not all(isinstance(v, str | int | float) for v in params.values())
        ):
            return None
        reason = cls(code, dict(params))
        try:
            reason.text()
        except (KeyError, ValueError, IndexError, AttributeError):
            return None
        return reason
