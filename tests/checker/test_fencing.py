"""Replays of the resource log under the four policies, on scenes whose outcome is known by hand."""

from __future__ import annotations

from lockbench.checker.check import check
from tests.checker.scenes import Scene


def scored(scene: Scene) -> dict[str, dict[str, int]]:
    found = check(scene.history()).measurements["fencing"]
    assert isinstance(found, dict)
    return found


def stale_writer(scene: Scene) -> Scene:
    """Client 1 reads, is frozen, loses its lease to client 2, and writes when it thaws."""
    scene.acquire(1, 0, 1, until=5, fence=1).read(1, 1.5, 0)
    scene.acquire(2, 2, 6, until=12, fence=2).read(2, 6.5, 0).write(2, 6.6, 0, 1, fence=2)
    return scene.release(2, 7, 7.1).write(1, 8, 0, 2, fence=1)


def test_a_stale_write_after_the_next_holder_wrote() -> None:
    found = scored(stale_writer(Scene()))
    assert found["unfenced"]["stale_attempted"] == 1
    assert found["unfenced"]["stale_applied"] == 1
    assert found["unfenced"]["lost_updates"] == 1
    for policy in ("fence-on-write", "fence-on-read-and-write", "random-token-cas"):
        assert found[policy]["stale_refused"] == 1, policy
        assert found[policy]["lost_updates"] == 0, policy
        assert found[policy]["valid_refused"] == 0, policy


def test_a_stale_write_before_the_next_holder_wrote() -> None:
    """Only a fence checked on reads, or the token left by the read, refuses it: the newer fence has
    not been written yet. Checked on writes alone, the update that client 2 builds on old ground
    replaces the stale one."""
    scene = Scene().acquire(1, 0, 1, until=5, fence=1).read(1, 1.5, 0)
    scene.acquire(2, 2, 6, until=12, fence=2).read(2, 6.5, 0)
    scene.write(1, 6.7, 0, 1, fence=1).write(2, 6.9, 0, 2, fence=2).release(2, 7, 7.1)
    found = scored(scene)
    assert found["fence-on-write"]["stale_applied"] == 1
    assert found["fence-on-write"]["lost_updates"] == 1
    for policy in ("fence-on-read-and-write", "random-token-cas"):
        assert found[policy]["stale_refused"] == 1, policy
        assert found[policy]["lost_updates"] == 0, policy


def test_a_stale_read_steals_the_random_token() -> None:
    """Without an order among tokens a stale reader passes and the rightful holder is refused."""
    scene = Scene().acquire(1, 0, 1, until=5, fence=1)
    scene.acquire(2, 2, 6, until=12, fence=2).read(2, 6.5, 0)
    scene.read(1, 6.7, 0).write(2, 6.9, 0, 1, fence=2).release(2, 7, 7.1)
    found = scored(scene)
    assert found["random-token-cas"]["stale_applied"] == 1
    assert found["random-token-cas"]["valid_refused"] == 1
    assert found["fence-on-read-and-write"]["stale_refused"] == 1
    assert found["fence-on-read-and-write"]["valid_refused"] == 0


def test_without_fences_only_what_needs_none_is_scored() -> None:
    scene = Scene().acquire(1, 0, 1, until=5).read(1, 1.5, 0).write(1, 1.6, 0, 1).release(1, 2, 3)
    assert set(scored(scene)) == {"unfenced", "random-token-cas"}


def test_a_write_whose_reply_was_lost_still_counts() -> None:
    scene = Scene().acquire(1, 0, 1, until=5).read(1, 1.5, 0)
    scene.acquire(2, 2, 6, until=12).read(2, 6.5, 0)
    scene.op(6, 2, 6.6, None, "info", version=0)  # type: ignore[arg-type]
    scene.write(1, 8, 0, 2)
    assert scored(scene)["unfenced"]["lost_updates"] == 1


def test_healthy_load_is_never_refused() -> None:
    scene = Scene()
    for i in range(50):
        t = 10.0 * i
        scene.acquire(i, t, t + 1, until=t + 10, fence=i).read(i, t + 2, i)
        scene.write(i, t + 3, i, i + 1, fence=i).release(i, t + 4, t + 5)
    for counts in scored(scene).values():
        assert set(counts.values()) == {0}
