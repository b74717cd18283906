"""Settings as nested typed records."""

from apil.settings.run import (
    LearnerSettings,
    ModelSettings,
    QuerySettings,
    RunSettings,
    TaskSettings,
    TeacherSettings,
    WhomSettings,
)

__all__ = [
    "LearnerSettings",
    "ModelSettings",
    "QuerySettings",
    "RunSettings",
    "TaskSettings",
    "TeacherSettings",
    "WhomSettings",
]
