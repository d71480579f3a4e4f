"""Maps as text, as frames of sprites and as GIFs."""

import io

import numpy as np
import pytest
from PIL import Image, ImageSequence

from crossfade.envs.treasurehunt.params import AGENT, EMPTY, FIRST_ITEM, WALL, TreasurehuntParams
from crossfade.envs.treasurehunt.sprites import agent_colour, item_colour, sprites
from crossfade.envs.treasurehunt.view import LAST, ansi, encode, frames, gif, letters

ITEMS = ("gem:10:0.1", "bone:-10:0.1", "deck_a:1:0.1", "deck_b:2:0.1")
SMALL = TreasurehuntParams(height=4, width=5, agents=2, radius=1, items=ITEMS)
GEM, BONE, DECK_A, DECK_B = range(FIRST_ITEM, FIRST_ITEM + 4)
GRID = np.array(
    [
        [WALL, WALL, WALL, WALL, WALL],
        [WALL, AGENT, GEM, EMPTY, WALL],
        [WALL, DECK_B, BONE, AGENT, WALL],
        [WALL, WALL, WALL, WALL, WALL],
    ],
    np.int8,
)
PLACES = np.array([[2, 3], [1, 1]])


# Text


def test_a_map_as_plain_text():
    assert ansi(SMALL, GRID, colour=False) == "# # # # #\n# A g . #\n# e b A #\n# # # # #"
    assert ansi(SMALL, GRID, PLACES, colour=False) == "# # # # #\n# 1 g . #\n# e b 0 #\n# # # # #"


def test_a_map_in_colour_says_the_same_and_ends_every_colour():
    text = ansi(SMALL, GRID, PLACES)
    plain = "".join(part.partition("m")[2] for part in ("m" + text).split("\x1b["))
    assert [line.rstrip() for line in plain.split("\n")] == ansi(SMALL, GRID, PLACES, colour=False).split("\n")
    assert text.count("\x1b[") == 2 * GRID.size and text.count("\x1b[0m") == GRID.size
    # hue 0.6, lightness 0.5, saturation 0.68: 255 (0.16, 0.16 + 0.68 * 6 (2/3 - 0.6), 0.84); of six levels (1, 2, 4),
    # and 16 + 36 + 2 * 6 + 4 = 68
    assert agent_colour(SMALL, 0) == (41, 110, 214)
    assert "\x1b[1;97;48;5;68m0 \x1b[0m" in text


def test_every_item_has_a_letter_of_its_own():
    assert letters(SMALL) == ["g", "b", "d", "e"]
    assert letters(TreasurehuntParams(items=("apple:1:0", "a:1:0", "_:1:0"))) == ["a", "b", "c"]
    many = letters(TreasurehuntParams(items=tuple(f"item{k}:1:0" for k in range(60))))
    assert len({sign for sign in many if sign != "?"}) == 51 and many.count("?") == 9 and "A" not in many


# Sprites


def test_sprites_are_made_once_and_cannot_be_changed():
    made = sprites(SMALL, 24)
    assert sprites(TreasurehuntParams(height=4, width=5, agents=2, radius=1, items=ITEMS), 24) is made
    assert sprites(SMALL, 12) is not made
    with pytest.raises(ValueError, match="read-only"):
        made[0, 0, 0] = 0


def test_there_is_a_sprite_for_every_code_agent_and_agent_that_is_it_and_they_differ():
    made = sprites(SMALL, 24)
    codes = EMPTY, WALL, AGENT, GEM, BONE, DECK_A, DECK_B, SMALL.pad
    assert made.shape == (len(codes) + 2 * 2, 24, 24, 3) and made.dtype == np.uint8
    assert np.array_equal(made[SMALL.pad], made[WALL])
    assert len(np.unique(made.reshape(len(made), -1), axis=0)) == len(made) - 1
    first, ring = made[SMALL.pad + 1], made[SMALL.pad + 3]
    assert np.abs(first[17, 12].astype(int) - agent_colour(SMALL, 0)).max() <= 4  # below the eyes
    assert np.array_equal(first[17, 12], ring[17, 12])
    assert np.array_equal(first[0, 0], made[EMPTY][0, 0]) and not np.array_equal(first[1, 12], ring[1, 12])


@pytest.mark.parametrize("number", [1, 2, 5, 12])
def test_agents_and_items_have_colours_of_their_own(number):
    params = TreasurehuntParams(agents=number, items=tuple(f"item{k}:1:0.01" for k in range(number)))
    for of in (agent_colour, item_colour):
        assert len({of(params, k) for k in range(number)}) == number


# Frames


def test_a_frame_is_the_map_in_sprites_above_a_caption():
    grids = np.stack([GRID, np.where(GRID == GEM, EMPTY, GRID).astype(np.int8)])
    wide = TreasurehuntParams(height=4, width=5, agents=2, radius=1, items=ITEMS)
    art = sprites(wide, 40)
    first, second = frames(wide, grids, ["one", "two"], cell=40)
    assert first.shape == second.shape == (4 * 40 + 28, 5 * 40, 3) and first.dtype == np.uint8
    for row, column in np.ndindex(4, 5):
        cell = first[row * 40 : row * 40 + 40, column * 40 : column * 40 + 40]
        assert np.array_equal(cell, art[GRID[row, column]]), (row, column)
    apart = (first != second).any(-1)
    assert apart[40:80, 80:120].any() and apart[160:].any()
    apart[40:80, 80:120] = apart[160:] = False
    assert not apart.any()


def test_agents_are_told_apart_by_their_places_and_whoever_is_it_has_a_ring():
    roles, art = np.array([[0, 1]], np.int8), sprites(SMALL, 40)
    (frame,) = frames(SMALL, GRID[None], ["turn 1"], places=PLACES[None], roles=roles, cell=40)
    assert np.array_equal(frame[80:120, 120:160], art[SMALL.pad + 1])  # agent 0 at (2, 3)
    assert np.array_equal(frame[40:80, 40:80], art[SMALL.pad + 1 + 2 + 1])  # agent 1 at (1, 1), it


def test_a_narrow_map_stands_in_the_middle_of_a_frame_wide_enough_for_words():
    tiny = TreasurehuntParams(height=3, width=3, agents=1, radius=1, items=())
    grid = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], np.int8)
    (frame,) = frames(tiny, grid[None], ["a caption longer than the map is, cut off at the end"], cell=10)
    assert frame.shape[1] == 180
    assert np.array_equal(frame[10:20, 85:95], sprites(tiny, 10)[EMPTY])
    assert (frame[:30, :75] == frame[0, 0]).all() and (frame[:30, 105:] == frame[0, 0]).all()


def test_what_agents_have_earned_stands_below():
    one, two = (
        frames(SMALL, GRID[None], ["turn 1"], earned=np.array([[10.0, earned]]), cell=40)[0] for earned in (5.0, -1.0)
    )
    apart = (one != two).any(-1)
    assert one.shape[0] > 4 * 40 + 28 and not apart[: 4 * 40 + 28].any() and apart.any()


# GIFs


def walk(turns: int) -> tuple[TreasurehuntParams, list[np.ndarray]]:
    """Two agents who go round a map of the usual size, on which gems lie."""
    params = TreasurehuntParams(agents=2, turns=turns)
    grid = np.repeat(params.crop(params.empty_map)[None], turns + 1, 0)
    grid[:, 4:6, 4:6] = FIRST_ITEM
    places = np.array([[[1, 1 + t % 8], [8, 8 - t % 8]] for t in range(turns + 1)])
    for t, agents in enumerate(places):
        grid[(t, *agents.T)] = AGENT
    words = [f"turn {t} of {turns}" for t in range(turns + 1)]
    return params, frames(
        params, grid, words, places=places, earned=np.ones((turns + 1, 2)) * np.arange(turns + 1)[:, None]
    )


def test_a_gif_has_every_frame_and_is_small(tmp_path):
    _, made = walk(50)
    path = gif(tmp_path / "deep" / "game.gif", made, 100)
    assert [file.name for file in path.parent.iterdir()] == ["game.gif"]
    assert path.stat().st_size < 300_000
    with Image.open(path) as image:
        assert image.n_frames == 51 and image.size == (made[0].shape[1], made[0].shape[0])
        assert image.info["loop"] == 0
        found = [(frame.info["duration"], np.asarray(frame.convert("RGB"))) for frame in ImageSequence.Iterator(image)]
    assert [duration for duration, _ in found] == [100] * 50 + [100 * LAST]
    for (_, shown), frame in zip(found, made, strict=True):
        assert np.array_equal(shown, frame)


def test_a_gif_of_more_colours_than_it_can_hold_is_near():
    ramp = np.stack(np.meshgrid(np.arange(0, 250, 10), np.arange(0, 250, 10)), -1)
    first = np.concatenate([ramp, np.full_like(ramp[..., :1], 90)], -1).astype(np.uint8)
    assert len(np.unique(first.reshape(-1, 3), axis=0)) == 625
    with Image.open(io.BytesIO(encode([first, first[::-1]], 50))) as image:
        assert image.n_frames == 2
        near = np.abs(np.asarray(image.convert("RGB")).astype(int) - first)
    assert near.max() <= 20
