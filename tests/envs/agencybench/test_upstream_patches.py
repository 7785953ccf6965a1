"""Code/2 and 3: a patch that does what is asked, none, and a stub."""

from __future__ import annotations

import pytest

from agentgym.sandbox import Snapshot
from envs.agencybench.assessment import Assessment
from envs.agencybench.assessor import assess
from envs.agencybench.scenario import Task, World
from envs.agencybench.upstream.checks.table import checks_for
from envs.agencybench.upstream.sections import Sections

PLACE = "autogen/agentchat/contrib/qdrant_retrieve_user_proxy_agent.py"
AGENT = """from autogen.agentchat.contrib.retrieve_user_proxy_agent import RetrieveUserProxyAgent
from qdrant_client import QdrantClient


class QdrantRetrieveUserProxyAgent(RetrieveUserProxyAgent):
    def __init__(self, name="q", config=None):
        super().__init__(name, config)
        self._client = QdrantClient(":memory:")
        self._collection = "all"
        self._model = "small"

    def retrieve_docs(self, problem, n_results=20, search_string=""):
        found = self._client.query(self._collection, problem, limit=n_results)
        kept = [hit for hit in found if search_string in hit.document]
        ids = [[hit.id for hit in kept]]
        documents = [[hit.document for hit in kept]]
        self._results = {"ids": ids, "documents": documents}
        return self._results
"""
WHOLE = {
    PLACE: AGENT,
    "setup.py": "extras = {'retrievechat': ['qdrant_client[fastembed]']}\n",
    ".github/workflows/contrib-openai.yml": "run: pip install qdrant_client\n",
}
STUB = AGENT.partition("    def")[0] + "    pass\n"


def scored(files, name="Code/scenario2"):
    task = Task("t", "q", "", "", checks_for(name, 1, Sections("q", "", "", "free")))
    content = {path: text.encode() for path, text in files.items()}
    return assess(task, Assessment(Snapshot(content), World({}), None, "k"))


@pytest.mark.parametrize("name", ["Code/scenario2", "Code/scenario3"])
def test_a_patch(name):
    made = scored(WHOLE, name)
    assert made.score == 1.0, made.as_json()
    assert made.coverage == pytest.approx(0.35)
    assert scored({}, name).score == 0.0


@pytest.mark.parametrize(
    "files",
    [
        {**WHOLE, PLACE: STUB},
        {PLACE: AGENT.replace("RetrieveUserProxyAgent)", "object)")},
        {"autogen/qdrant.py": AGENT},
        {PLACE: AGENT.replace("from qdrant_client import QdrantClient", "QdrantClient = object")},
        {PLACE: "qdrant ="},
        {"README.md": "qdrant", "setup.py": "qdrant"},
    ],
)
def test_what_is_no_patch(files):
    assert scored(files).score <= 0.3


def test_a_file_that_is_no_python():
    made = scored({**WHOLE, "autogen/retrieve_utils.py": "def"})
    assert {r.id for r in made.results if r.value == 0.0} == {"syntax"}
