"""What the user set stays."""

from __future__ import annotations

from musterpoint.core.fabric.setting import EnvSetting, unless_set


def test_the_first_setting_of_a_variable_counts() -> None:
    settings = (EnvSetting("A", "1", ""), EnvSetting("A", "2", ""), EnvSetting("B", "3", ""))
    assert unless_set(settings, {"B": ""}) == (EnvSetting("A", "1", ""),)


def test_a_search_path_goes_on_with_the_users() -> None:
    longer = EnvSetting("LD_LIBRARY_PATH", "/compat:/mine", "r")
    assert unless_set((longer,), {"LD_LIBRARY_PATH": "/mine"}) == (longer,)
