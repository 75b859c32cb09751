"""verify, sign: whether evidence and reports are what was sealed, and by whom they are signed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvgate.commands.bundles import BundlePath, judged_bundle, require_bundle, stored_verdict
from kvgate.commands.findings import Ask, Findings, Party, add_signatures
from kvgate.commands.shown import document, note, say
from kvgate.commands.verify_report import verify_report
from kvgate.errors import EXIT_INVALID, EXIT_PASS, CannotMeasure, KvgateError, UsageError

if TYPE_CHECKING:
    from kvgate.contract import Contract


def verify_command(
    target: Annotated[
        Path, typer.Argument(metavar="BUNDLE|REPORT.pdf", help="A gate run, or its report.")
    ],
    allowed_signers: Annotated[
        Path | None,
        typer.Option(help="OpenSSH allowed-signers file: every signature must be by one of them."),
    ] = None,
    contract: Annotated[
        Path | None,
        typer.Option(help="The contract that you signed: its digest and its signers must be met."),
    ] = None,
    signed_by: Annotated[
        list[Party] | None, typer.Option(help="This party must have signed. May be repeated.")
    ] = None,
    expect: Annotated[
        str | None, typer.Option(help="SHA-256 that the manifest must have, from elsewhere.")
    ] = None,
    bundle: Annotated[
        list[Path] | None,
        typer.Option(help="For a report: bundles to render it from again, byte for byte."),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Compare a bundle or a report with what was sealed: digests, chain, signatures, verdict.

    Every problem is one line, and so is everything that could not be checked. Exit code 0 where
    there is no problem, else 11.
    """
    from kvgate.contract import load_contract
    from kvgate.evidence.pdf import is_pdf

    given = None if contract is None else load_contract(contract)
    ask = Ask(allowed_signers, given, tuple(str(p) for p in signed_by or ()), expect)
    if is_pdf(target):
        found = verify_report(target, ask, bundle or [])
    else:
        if bundle:
            raise UsageError("--bundle belongs to a report", where=str(target), remedy="drop it")
        found = _verify_bundle(target, ask)
    if json_output:
        document({
            "target": target, "intact": not found.problems, "problems": found.problems,
            "checked": found.checked, "not_checked": found.unchecked,
            "signatures": found.signatures,
        })  # fmt: skip
    else:
        _show(target, found)
    raise typer.Exit(EXIT_INVALID if found.problems else EXIT_PASS)


def _show(target: Path, found: Findings) -> None:
    for problem in found.problems:
        say(problem)
    for line in found.checked:
        say(f"checked: {line}")
    for signature in found.signatures:
        key = f" ({signature['key']})" if signature["key"] else ""
        say(f"signature of {signature['party']}: {signature['status']}: {signature['detail']}{key}")
    for line in found.unchecked:
        say(f"not checked: {line}")
    count = len(found.problems)
    ending = f"{count} problem{'s' * (count != 1)}" if count else f"intact: {found.summary}"
    say(f"{target}: {ending}")


def _verify_bundle(bundle: Path, ask: Ask) -> Findings:
    from kvgate.evidence.chain import follow
    from kvgate.evidence.signatures import signature_states
    from kvgate.evidence.verify import verify

    require_bundle(bundle)
    found = Findings([str(p) for p in verify(bundle, expected_manifest_sha256=ask.expect)])
    own: Contract | None = None
    try:
        judged = judged_bundle(bundle)
    except KvgateError as fault:
        found.problems.append(f"verdict.json: not recomputed: {fault}")
    else:
        own = judged.contract
        stored = stored_verdict(judged)
        if stored != "identical":
            told = f"verdict.json: {stored}: the evidence gives {judged.verdict.verdict}"
            found.problems.append(told)
        if judged.bundle.partial_reason is not None:
            found.problems.append(f"bundle: partial: {judged.bundle.partial_reason}")
        found.problems += ask.contract_problems(own.digest)
        manifest = judged.bundle.manifest
        found.summary = (
            f"{0 if manifest is None else len(manifest.files)} files, "
            f"manifest {judged.bundle.manifest_sha256}, "
            f"G{judged.verdict.gate} {judged.verdict.verdict} recomputed"
        )
    chain = follow(bundle)
    found.problems += [str(p) for p in chain.problems]
    if chain.intact:
        found.checked.append(f"the gates before: {', '.join(chain.intact)}")
    found.unchecked += [
        f"the gate before is not beside this bundle (manifest {digest})" for digest in chain.absent
    ]
    if (bundle / "manifest.json").is_file():
        signers = ask.signers(own)
        try:
            states = signature_states(bundle, tuple(Party), signers.allowed)
        except CannotMeasure as fault:
            found.problems.append(f"signatures: not checked: {fault}")
        else:
            add_signatures(found, states, signers, [f"signatures/{s.party}.sig" for s in states])
    return found


def sign_command(
    bundle: BundlePath,
    key: Annotated[
        Path,
        typer.Option(help="SSH private key, or its .pub where the private half is in ssh-agent."),
    ],
    party: Annotated[Party, typer.Option("--as", help="Who signs.")],
) -> None:
    """Sign a sealed bundle's manifest with an SSH key; only an intact bundle can be signed.

    The private key is used by ssh-keygen alone. Exit code 0 where the signature is in place.
    """
    from kvgate.evidence.signatures import allowed_lines, sign, signature_states
    from kvgate.evidence.verify import verify

    require_bundle(bundle)
    judged = judged_bundle(bundle)
    if judged.bundle.manifest is None:
        raise UsageError("bundle is not sealed", where=str(bundle), remedy="only a seal is signed")
    problems = [str(p) for p in verify(bundle)]
    if stored_verdict(judged) != "identical":
        problems.append("verdict.json: it is not what the evidence gives")
    if problems:
        raise CannotMeasure(
            f"the bundle is not what was sealed: {problems[0]}",
            where=str(bundle),
            remedy=f"kvgate verify {bundle} lists every difference; do not sign it",
        )
    place = bundle / "signatures" / f"{party}.sig"
    if place.exists():
        raise UsageError(
            f"{party} has signed already", where=str(place), remedy="remove it to sign anew"
        )
    path = sign(bundle, key, party)
    allowed = allowed_lines(judged.contract.parties.signers)
    state = signature_states(bundle, (party,), allowed)[0]
    if state.status != "valid" and state.fault != "no-signers":
        path.unlink()
        raise UsageError(
            f"the contract does not let this key sign as {party}: {state.detail}",
            where=str(key),
            remedy="use the key that parties.signers names",
        )
    say(f"{path}: signed as {party} with {state.key}")
    say(f"manifest {judged.bundle.manifest_sha256}")
    note(f"kvgate report {bundle} renders the report again, with the signature in it")
