"""Real models for the compiler: files, tokenizers, weights, and the networks themselves.

One module per noun: `download` fetches a known model, `gguf` opens its file, `dequantise` decodes
it, `config` says what network it holds, `weights` names and shapes the parameters, `tokenizer` maps
text to token numbers and back, `tiny` is a model made on the spot, `language_model` puts these
together, and `reference` is the slow and obvious forward pass that the compiled one must equal.
Counterpart: the model definitions of MLC, which TVM leaves to others.

Examples
--------
>>> from relaxlab.models.language_model import open_model
>>> open_model("tiny").config.layers
2
"""
