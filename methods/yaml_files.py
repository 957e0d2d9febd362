"""YAML files that users write. Errors give the line and the cause in words, without the parser's own report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

#: most characters of a problem that are shown
SHOWN = 200


class YamlFault(ValueError):
    """A file that cannot be read as YAML; the text is the end of a sentence that begins with the file's name."""


class _Loader(yaml.SafeLoader):
    """Safe YAML without two things that users hardly intend: repeated keys, of which the last would win, and aliases,
    since a few lines of them can expand to more text than fits in memory."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise YamlFault(f"has the alias *{event.anchor} in line {_line(event)}; write its content out instead")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        known: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in known:
                raise YamlFault(f"has the key {key.value} twice, the second time in line {_line(key)}; leave one out")
            known.add(key.value)
        return super().construct_mapping(node, deep)


def read(path: Path) -> Any:
    """The content of a YAML file, None where it is empty. Raises :class:`YamlFault`."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except YamlFault:
        raise
    except OSError as error:
        raise YamlFault(f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise YamlFault(f"is not UTF-8 text ({error.reason})") from error
    except yaml.MarkedYAMLError as error:
        problem = str(error.problem or "")
        if not problem or problem.startswith("but "):  # the second half of a sentence
            problem = f"{error.context or 'something else is expected'} {problem}"
        problem = " ".join(problem.split())[:SHOWN]
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise YamlFault(f"is not YAML{where}: {problem}") from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise YamlFault(f"is not YAML: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise YamlFault("is nested too deeply") from error
    except (ValueError, AttributeError, LookupError, TypeError) as error:  # no such date or number, or tagged as one
        raise YamlFault(f"has a value that cannot be read ({str(error)[:SHOWN]}); put it in quotes") from error


def _line(marked: Any) -> int:
    return int(marked.start_mark.line) + 1
