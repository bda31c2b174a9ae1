"""A whisper model of one layer with random weights: loads and runs as real ones do, and babbles."""

from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs.whisper_spec import WhisperSpec
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

WIDTH = 64
_SPECIAL = (
    "<|endoftext|>", "<|startoftranscript|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>",
    "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>",
)  # fmt: skip


def build(folder: Path) -> Path:
    """The files of a faster-whisper model, about 1 MB."""
    folder.mkdir(parents=True)
    tokens = _save_tokenizer(folder)
    chance = np.random.default_rng(7)

    def weights(*shape):
        return (chance.standard_normal(shape) * 0.1).astype(np.float32)

    def fill_norm(norm):
        norm.gamma, norm.beta = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)

    def fill(linear, outputs, inputs=WIDTH):
        linear.weight, linear.bias = weights(outputs, inputs), np.zeros(outputs, np.float32)

    def fill_attention(attention, *outputs):
        fill_norm(attention.layer_norm)
        for linear, width in zip(attention.linear, outputs, strict=True):
            fill(linear, width)

    def fill_ffn(ffn):
        fill_norm(ffn.layer_norm)
        fill(ffn.linear_0, 4 * WIDTH)
        fill(ffn.linear_1, WIDTH, 4 * WIDTH)

    spec: Any = WhisperSpec(1, 1, 1, 1)
    for convolution, inputs in ((spec.encoder.conv1, 80), (spec.encoder.conv2, WIDTH)):
        convolution.weight = weights(WIDTH, inputs, 3)
        convolution.bias = np.zeros(WIDTH, np.float32)
    spec.encoder.position_encodings.encodings = weights(1500, WIDTH)
    spec.decoder.position_encodings.encodings = weights(448, WIDTH)
    spec.decoder.embeddings.weight = weights(len(tokens), WIDTH)
    spec.decoder.projection.weight = spec.decoder.embeddings.weight
    for half in (spec.encoder, spec.decoder):
        fill_norm(half.layer_norm)
        for layer in half.layer:
            fill_attention(layer.self_attention, 3 * WIDTH, WIDTH)
            fill_ffn(layer.ffn)
    for layer in spec.decoder.layer:
        fill_attention(layer.attention, WIDTH, 2 * WIDTH, WIDTH)
    spec.register_vocabulary(tokens)
    spec.config.suppress_ids = spec.config.suppress_ids_begin = spec.config.lang_ids = []
    spec.config.alignment_heads = [(0, 0)]
    spec.validate()
    spec.optimize(quantization="int8")
    spec.save(str(folder))
    return folder


def _save_tokenizer(folder: Path) -> list[str]:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    times = [f"<|{number * 0.02:.2f}|>" for number in range(1501)]
    tokenizer = Tokenizer(models.BPE(vocab={c: n for n, c in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in _SPECIAL])
    tokenizer.add_tokens([AddedToken(word) for word in times])
    tokenizer.save(str(folder / "tokenizer.json"))
    return [*letters, *_SPECIAL, *times]
