"""Random embedding models of a few thousand weights, as sentence-transformers saves them."""

from __future__ import annotations

from pathlib import Path


def make_bert(folder: Path, width: int = 16, seed: int = 0) -> Path:
    """A BERT whose tokens are characters and pieces of words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    pieces = [chr(code) for code in range(32, 127)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {
        piece: number for number, piece in enumerate([*special, *pieces, *(f"##{piece}" for piece in pieces)])
    }
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
    )
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def make_late(folder: Path, base: Path) -> Path:
    """A ColBERT on top of such a BERT."""
    from sentence_transformers import MultiVectorEncoder

    MultiVectorEncoder(str(base)).save(str(folder))
    return folder
