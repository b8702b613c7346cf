"""What is taken back of what sagemaker-training did before it calls us; the call itself is in tests/hosts."""

from __future__ import annotations

from pathlib import Path

from musterpoint.integrations.sagemaker_training import end_their_upload, forget_empty


class Uploader:
    """What is asked of a child process."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def terminate(self) -> None:
        self.asked.append("terminate")

    def join(self) -> None:
        self.asked.append("join")


def test_an_empty_name_counts_as_unknown() -> None:
    environ = {"SAGEMAKER_JOB_NAME": "", "SAGEMAKER_REGION": "eu-west-1", "CURRENT_HOST": ""}
    forget_empty(environ)
    assert environ == {"SAGEMAKER_REGION": "eu-west-1", "CURRENT_HOST": ""}


def test_their_upload_ends_and_its_folders_go(tmp_path: Path) -> None:
    made = tmp_path / "output" / "intermediate" / ".tmp.sagemaker_s3_sync"
    made.mkdir(parents=True)
    end_their_upload(str(tmp_path), [])
    assert made.is_dir(), "nobody uploads: the folder is the platform's"
    process = Uploader()
    end_their_upload(str(tmp_path), [process])
    assert process.asked == ["terminate", "join"]
    assert list((tmp_path / "output").iterdir()) == []


def test_what_the_user_put_there_stays(tmp_path: Path) -> None:
    made = tmp_path / "output" / "intermediate"
    made.mkdir(parents=True)
    (made / "image.png").touch()
    process = Uploader()
    end_their_upload(str(tmp_path), [process])
    assert [path.name for path in made.iterdir()] == ["image.png"]
