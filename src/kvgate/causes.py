"""Why a value is missing, or of whom it speaks: what a reason gives in brackets, in two languages.

They are reasons of their own (`kvgate.reason.Reason`), carried inside another one, so that figures
in them stay figures in every language.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CAUSES: Final[Mapping[str, tuple[str, str]]] = {
    # whom a value outside its limit speaks about
    "of_the_buyers_hosts": (
        "it speaks of {group}, which the vendor did not deliver",
        "该数值属于{group}，并非供应商交付",
    ),
    "of_another_arm": (
        "it speaks of the arm {arm}, which does not hold the appliance",
        "该数值属于 {arm}，其中不含受测设备",
    ),
    "conditions_broken": ("the run broke {conditions}", "本次运行不满足 {conditions}"),
    "engine_restarted": (
        "the engine restarted while the store lived on",
        "存储正常而引擎重启",
    ),
    "restarted_together": (
        "engine and store restarted together: a host or its operator",
        "引擎与存储同时重启：属主机或操作所致",
    ),
    "other_store_restarted": ("another arm's store restarted", "其他组的存储重启"),
    "store_restarted": (
        "the store restarted while the engine lived on",
        "引擎正常而存储重启",
    ),
    "engine_silent": ("the engine did not answer our looks", "引擎未响应观测"),
    "engine_fails_alone": ("the engine fails without the store too", "不接存储时引擎同样失败"),
    "engine_slows_alone": (
        "the engine without the store slowed too",
        "不接存储时引擎同样变慢",
    ),
    "engine_answers_alone": (
        "the engine answers without the store, before and after",
        "不接存储时引擎前后均正常应答",
    ),
    "store_errors": ("the store counted errors", "存储自身计有错误"),
    "store_silent": (
        "the store did not answer while the engine did",
        "引擎有响应而存储无响应",
    ),
    "store_broke_promise": (
        "the store promised what it did not deliver",
        "存储声称命中却未交付",
    ),
    "nobody_tells": (
        "the store's counters show nothing, and no arm without a store answered before and after",
        "存储计数无异常，且无不接存储的对照组前后应答",
    ),
    "store_not_asked": (
        "the store was not asked, or had not acknowledged",
        "未查询存储，或存储未确认写入",
    ),
    "lowest_window": ("lowest from {low} to {high} s", "最低值出现在 {low} 至 {high} 秒"),
    # answers of a long run
    "canaries_wrong": ("{count} of {n} canary answers", "{n} 个哨兵回答中有 {count} 个"),
    "canaries_not_restored": ("they were not restored", "相关回答并非恢复所得"),
    "canary_blocks": ("{n} blocks of canaries, one is wanted", "哨兵测量块 {n} 个，应为一个"),
    "canary_client": (
        "the canaries' client ended as {state}",
        "哨兵客户端以状态 {state} 结束",
    ),
    "no_canary": ("no canary was asked", "未询问哨兵"),
    "no_reference": (
        "the {arm} arm gave no usable reference",
        "{arm}未给出可用的基准回答",
    ),
    "reference_not_asked_again": (
        "the {arm} arm was not asked again after the soak",
        "长时运行之后未再次询问{arm}",
    ),
    "engine_unlike_itself": (
        "the engine disagrees with itself in {count} of {n} answers",
        "引擎自身重复运行，{n} 个回答中有 {count} 个不一致",
    ),
    "canaries_without_reference": (
        "{n} canary answers have no reference",
        "{n} 个哨兵回答没有基准可对照",
    ),
    "window_without_canary": (
        "no restored canary between {low} and {high} s",
        "{low} 至 {high} 秒之间没有恢复所得的哨兵回答",
    ),
    "few_canaries": (
        "{n} of at least {needed} canary answers",
        "哨兵回答 {n} 个，至少需要 {needed} 个",
    ),
    # faults of a long run
    "fault_not_played": ("not every fault was played", "并非每个故障都已注入"),
    "ended_too_early": ("the run ended before it could be told", "运行过早结束，无法判断"),
    "process_replaced": (
        "{name}: process {old} ended, process {new} answers",
        "{name}：进程 {old} 已结束，由进程 {new} 应答",
    ),
    "tokens_dropped": ("{n} tokens dropped", "清除 {n} 个词元的缓存"),
    "too_many_failed": (
        "{count} of {n} requests failed within {seconds} s",
        "{seconds} 秒内 {n} 个请求有 {count} 个失败",
    ),
    # what a host did not say
    "without_value": ("no value", "无数值"),
    "not_finite": ("not a finite number", "不是有限数值"),
    "unreadable": ("unreadable: {said}", "无法解读：{said}"),
    "fact_missing": ("{what} is missing", "缺少 {what}"),
    "fact_negative": ("{what} is {found}", "{what} 为 {found}"),
    "no_interface": (
        "no interface named: set kvgate_roce_interface in the inventory",
        "未指定网口：请在清单中设置 kvgate_roce_interface",
    ),
    "no_gid": ("no IPv4 RoCE v2 GID", "没有 IPv4 RoCE v2 GID"),
    "no_rdma": ("no RDMA device", "没有 RDMA 设备"),
    "tool_silent": ("{tool} did not run: {said}", "{tool} 未能运行：{said}"),
    "tool_failed": ("{tool} ended with {rc}: {said}", "{tool} 以返回码 {rc} 结束：{said}"),
    "tool_cut_off": (
        "{tool} said more than was kept: what is missing is not known",
        "{tool} 的输出超出保留长度，缺失部分未知",
    ),
    "no_gpu_tool": (
        "none of amd-smi, npu-smi, nvidia-smi answered",
        "amd-smi、npu-smi、nvidia-smi 均无应答",
    ),
    "no_nvme": ("no NVMe device found", "未发现 NVMe 设备"),
    "no_nvme_list": ("nvme listed no devices", "nvme 未列出设备"),
    "kernel_log_empty": (
        "the kernel log of 24 h is empty: it may not be readable",
        "近 24 小时内核日志为空：可能无读取权限",
    ),
    "needs_root": (
        "{what} cannot be read (root needed?)",
        "无法读取 {what}（可能需要 root 权限）",
    ),
}
