"""TLS with the kernel's receive stamps."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kvgate.errors import CannotMeasure
from kvgate.load.run import run_load
from kvgate.record import Outcome

from .conftest import MakeJob, StartEngine, run_job


def test_tls_keeps_the_kernels_stamps(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    cert, key = _certificate(tmp_path)
    secure = start_engine(
        "--ttft-s", "0.01", "--gap-s", "0.002", "--tls", str(cert), str(key), scheme="https"
    )
    job = make_job(secure.url, requests=6, concurrency=2, ca_file=str(cert))
    run = run_job(job, tmp_path)
    assert [r.outcome for r in run.records] == [Outcome.OK] * 6
    assert run.result.report is not None
    assert run.result.report.unstamped_reads < run.result.report.reads
    assert all(r.client_lag_ns is not None for r in run.records)


def test_a_certificate_that_nobody_vouches_for_is_refused(
    start_engine: StartEngine, make_job: MakeJob, tmp_path: Path
) -> None:
    cert, key = _certificate(tmp_path)
    secure = start_engine("--tls", str(cert), str(key), scheme="https")
    with pytest.raises(CannotMeasure, match="certificate verify failed"):
        run_load(make_job(secure.url, connect_deadline_s=0.3), tmp_path, deadline_s=30)


def _certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "truth")])
    day = datetime.timedelta(days=1)
    now = datetime.datetime.now(datetime.UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    cert_path.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_path, key_path
