"""Defaults for SageMaker's SDKs, in their own configuration file.

Without a default bucket the SDKs ask STS for the account, at AWS's own address whatever ``AWS_ENDPOINT_URL`` says, and
telemetry goes there, too. A user's own file comes after this one, and wins.
"""

from __future__ import annotations

from musterpoint.local.tree import write_text
from musterpoint.serve.settings import ACCOUNT, Settings

_TEXT = """SchemaVersion: "1.0"
SageMaker:
  PythonSDK:
    Modules:
      TelemetryOptOut: true
      Session:
        DefaultS3Bucket: sagemaker-{region}-{account}
"""


def write(settings: Settings) -> None:
    """Writes the file that ``SAGEMAKER_ADMIN_CONFIG_OVERRIDE`` names. The bucket is the one the SDKs would choose."""
    write_text(settings.sdk_file, _TEXT.format(region=settings.region, account=ACCOUNT))
