"""Dense text families, encoders and encoder-decoders: published parameter counts and hand-checked shapes from inline configs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufit.errors import ConfigError
from gpufit.layers.cross import Cross
from gpufit.layers.full import Full
from gpufit.layers.latent import Latent
from gpufit.layers.sliding import Sliding
from gpufit.model import Model, Role
from gpufit.quantity import Q
from gpufit.sources.read import read_model


def model(**config: Any) -> Model:
    """The model of an inline config."""
    return read_model(config, id="org/name")


def tiny(model_type: str, **more: Any) -> dict[str, Any]:
    """A small config of a family with Llama's field names."""
    base = {
        "model_type": model_type, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 64,
    }  # fmt: skip
    return {**base, **more}


def number(q: Q | None) -> int | None:
    """The plain value."""
    return None if q is None else int(q)


def kinds(m: Model) -> list[tuple[str, tuple[int, ...]]]:
    """Kind and layer indices of each group."""
    return [(g.kind.kind, g.indices) for g in m.layers]


def sliding(m: Model) -> tuple[int, ...]:
    """The layers that slide."""
    return next((g.indices for g in m.layers if isinstance(g.kind, Sliding)), ())


def config(
    model_type: str, head: str, hidden: int, inner: int, layers: int, heads: int, kv: int, vocab: int, **more: Any
) -> dict[str, Any]:
    """A published config in Llama's field names."""
    return {
        "model_type": model_type, "architectures": [head], "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab, "max_position_embeddings": 4096, **more,
    }  # fmt: skip


SIDES = {"encoder_attention_heads": 12, "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
PUBLISHED: list[tuple[str, int, dict[str, Any]]] = [
    ("Llama-3.1-8B", 8_030_261_248, config("llama", "LlamaForCausalLM", 4096, 14336, 32, 32, 8, 128256)),
    ("Qwen2.5-7B", 7_615_616_512, config("qwen2", "Qwen2ForCausalLM", 3584, 18944, 28, 28, 4, 152064)),
    ("Qwen3-8B", 8_190_735_360, config("qwen3", "Qwen3ForCausalLM", 4096, 12288, 36, 32, 8, 151936, head_dim=128)),
    ("Mistral-7B", 7_241_732_096, config("mistral", "MistralForCausalLM", 4096, 14336, 32, 32, 8, 32000, sliding_window=4096)),
    ("Gemma-7B", 8_537_680_896, config("gemma", "GemmaForCausalLM", 3072, 24576, 28, 16, 16, 256000, head_dim=256)),
    (
        "Gemma-2-9B",
        9_241_705_984,
        config("gemma2", "Gemma2ForCausalLM", 3584, 14336, 42, 16, 8, 256000, head_dim=256, sliding_window=4096),
    ),
    ("Phi-4", 14_659_507_200, config("phi3", "Phi3ForCausalLM", 5120, 17920, 40, 40, 10, 100352)),
    ("Phi-2", 2_779_683_840, config("phi", "PhiForCausalLM", 2560, 10240, 32, 32, 32, 51200)),
    ("Command-R+", 103_810_674_688, config("cohere", "CohereForCausalLM", 12288, 33792, 64, 96, 8, 256000, use_qk_norm=True)),
    ("OLMo-7B", 6_888_095_744, config("olmo", "OlmoForCausalLM", 4096, 11008, 32, 32, 32, 50304)),
    ("Pythia-6.9B", 6_857_302_016, config("gpt_neox", "GPTNeoXForCausalLM", 4096, 16384, 32, 32, 32, 50432)),
    ("GLM-4-9B-0414", 9_400_279_040, config("glm4", "Glm4ForCausalLM", 4096, 13696, 40, 32, 2, 151552, head_dim=128)),
    ("InternLM2.5-20B", 19_861_149_696, config("internlm2", "InternLM2ForCausalLM", 6144, 16384, 48, 48, 8, 92544)),
    ("Baichuan2-13B", 13_896_668_160, config("baichuan", "BaichuanForCausalLM", 5120, 13696, 40, 40, 40, 125696)),
    ("MiniCPM-2B", 2_724_880_896, config("minicpm", "MiniCPMForCausalLM", 2304, 5760, 40, 36, 36, 122753, scale_depth=1.4)),
    ("Seed-OSS-36B", 36_151_104_512, config("seed_oss", "SeedOssForCausalLM", 5120, 27648, 64, 80, 8, 155136, head_dim=128)),
    ("Apertus-8B", 8_053_338_176, config("apertus", "ApertusForCausalLM", 4096, 21504, 32, 32, 8, 131072)),
    (
        "GPT-2 XL",
        1_557_611_200,
        {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024, "vocab_size": 50257},
    ),
    (
        "StarCoder",
        15_517_456_384,
        {
            "model_type": "gpt_bigcode",
            "n_embd": 6144,
            "n_layer": 40,
            "n_head": 48,
            "n_inner": 24576,
            "n_positions": 8192,
            "vocab_size": 49152,
        },
    ),
    (
        "BLOOM",
        176_247_271_424,
        {"model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112, "vocab_size": 250880},
    ),
    (
        "Falcon-40B",
        41_303_293_952,
        {
            "model_type": "RefinedWeb",
            "hidden_size": 8192,
            "n_layer": 60,
            "n_head": 128,
            "n_head_kv": 8,
            "parallel_attn": True,
            "bias": False,
            "vocab_size": 65024,
        },
    ),
    (
        "OPT-350M",
        331_196_416,
        {
            "model_type": "opt",
            "hidden_size": 1024,
            "ffn_dim": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "vocab_size": 50272,
            "word_embed_proj_dim": 512,
            "do_layer_norm_before": False,
            "max_position_embeddings": 2048,
        },
    ),
    (
        "Qwen-7B",
        7_721_324_544,
        {
            "model_type": "qwen",
            "hidden_size": 4096,
            "intermediate_size": 22016,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "kv_channels": 128,
            "vocab_size": 151936,
            "no_bias": True,
        },
    ),
    (
        "ChatGLM-6B",
        6_173_286_400,
        {
            "model_type": "chatglm",
            "architectures": ["ChatGLMModel"],
            "hidden_size": 4096,
            "inner_hidden_size": 16384,
            "num_layers": 28,
            "num_attention_heads": 32,
            "vocab_size": 130528,
        },
    ),
    (
        "BERT large",
        335_141_888,
        config("bert", "BertModel", 1024, 4096, 24, 16, 16, 30522, type_vocab_size=2, max_position_embeddings=512),
    ),
    ("GTE base en v1.5", 136_776_192, config("new", "NewModel", 768, 3072, 12, 12, 12, 30528, type_vocab_size=0)),
    ("ModernBERT base", 149_655_232, config("modernbert", "ModernBertForMaskedLM", 768, 1152, 22, 12, 12, 50368)),
    (
        "T5 small",
        60_506_624,
        {"model_type": "t5", "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "vocab_size": 32128},
    ),
    (
        "BART base",
        139_420_416,
        {
            "model_type": "bart",
            "architectures": ["BartModel"],
            "d_model": 768,
            "encoder_layers": 6,
            "decoder_layers": 6,
            **SIDES,
            "vocab_size": 50265,
            "max_position_embeddings": 1024,
        },
    ),
]


@pytest.mark.parametrize(("name", "total", "published"), PUBLISHED, ids=[name for name, _, _ in PUBLISHED])
def test_parameters_equal_what_is_published(name: str, total: int, published: dict[str, Any]) -> None:
    """The parts of a published config add up to its checkpoint's parameters, to the last one."""
    assert int(read_model(published, id=name).total_params) == total


def test_qwen_windows_hold_only_where_switched_on_and_late_enough() -> None:
    """A Qwen window counts only with use_sliding_window, and only from max_window_layers on."""
    off = model(**tiny("qwen2", sliding_window=16, use_sliding_window=False, max_window_layers=2))
    on = model(**tiny("qwen2", sliding_window=16, use_sliding_window=True, max_window_layers=5))
    late = model(**tiny("qwen3", sliding_window=16, use_sliding_window=True))
    assert sliding(off) == ()
    assert sliding(late) == ()
    assert sliding(on) == (5, 6, 7)


@pytest.mark.parametrize(("fields", "slide"), [({"sliding_window": None}, False), ({"sliding_window": 0}, False), ({}, True)])
def test_mistral_slides_in_every_layer_unless_its_window_is_null(fields: dict[str, Any], slide: bool) -> None:
    """An absent Mistral window is the class's 4096 tokens in all layers; a null or zero one is full attention."""
    m = model(**tiny("mistral", **fields))
    assert kinds(m) == [("sliding" if slide else "full", tuple(range(8)))]
    assert not slide or any("sliding_window" in said for said in m.assumptions)


@pytest.mark.parametrize(
    ("model_type", "fields", "full"),
    [
        ("gemma2", {"sliding_window": 16}, (1, 3, 5, 7)),
        ("gemma3_text", {"sliding_window": 16}, (5,)),
        ("gemma3_text", {"sliding_window": 16, "sliding_window_pattern": 3}, (2, 5)),
        ("olmo3", {"sliding_window": 16}, (3, 7)),
        ("cohere2", {"sliding_window": 16, "sliding_window_pattern": 4, "layer_switch": 4}, (3, 7)),
        ("cwm", {"sliding_window": 16}, (0, 4)),
        ("exaone4", {"sliding_window": 16, "sliding_window_pattern": "LLG"}, (2, 5, 7)),
        ("exaone4", {"sliding_window": None, "sliding_window_pattern": None}, tuple(range(8))),
        ("smollm3", {"sliding_window": 16, "use_sliding_window": True}, (0, 1, 2, 4, 5, 6)),
    ],
)
def test_patterns_say_which_layers_are_full(model_type: str, fields: dict[str, Any], full: tuple[int, ...]) -> None:
    """Each family's rule, its class default included, names the full layers; all others slide over the window."""
    m = model(**tiny(model_type, **fields))
    assert dict(kinds(m))["full"] == full
    assert len(full) + len(sliding(m)) == 8


def test_a_list_of_layer_types_beats_the_pattern() -> None:
    """layer_types decides where a file has both."""
    types = ["full_attention"] * 7 + ["sliding_attention"]
    assert sliding(model(**tiny("gemma3_text", sliding_window=16, sliding_window_pattern=2, layer_types=types))) == (7,)


@pytest.mark.parametrize(
    "fields",
    [
        {"layer_types": ["full_attention"] * 7},
        {"layer_types": ["full_attention"] * 7 + ["linear_attention"]},
        {"layer_types": ["sliding_attention"] * 8},
        {"vision_config": {"hidden_size": 8}},
        {"architectures": ["LlamaForCausalLMEagle3"]},
        {"architectures": ["LlamaForSomethingNew"]},
    ],
    ids=["short list", "unknown word", "no window", "a tower", "a draft", "an unknown head"],
)
def test_what_is_not_understood_is_refused(fields: dict[str, Any]) -> None:
    """A Llama file with a contradiction, a part that nobody sizes or an unknown class is refused, never half read."""
    with pytest.raises(ConfigError):
        model(**tiny("llama", **fields))


def test_a_file_without_its_structure_is_refused_and_smaller_gaps_are_said() -> None:
    """Width, layers and heads have no fall-back in a file of their own; another absent field takes the class default, in words."""
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        model(**{k: v for k, v in tiny("llama").items() if k != "num_hidden_layers"})
    m = model(**{k: v for k, v in tiny("gemma2", head_dim=16).items() if k != "vocab_size"})
    assert number(m.vocab_size) == 256_000
    assert any("vocab_size" in said and "Gemma2Config" in said for said in m.assumptions)


def test_a_null_differs_from_an_absent_field() -> None:
    """A null num_key_value_heads means as many as heads, where an absent one would be Mistral's eight."""
    heads = tiny("mistral", num_attention_heads=16, num_key_value_heads=None)
    assert number(model(**heads).kv_heads) == 16
    del heads["num_key_value_heads"]
    assert number(model(**heads).kv_heads) == 8


@pytest.mark.parametrize(
    ("head", "more"),
    [
        ("LlamaForCausalLM", 128 * 64),
        ("LlamaModel", 0),
        ("LlamaForSequenceClassification", 3 * 64),
        ("LlamaForTokenClassification", 3 * 64 + 3),
    ],
)
def test_the_class_decides_what_stands_on_top(head: str, more: int) -> None:
    """A bare model has no head, a classifier one row a label, with a bias only for tokens."""
    labels = {"id2label": {"0": "a", "1": "b", "2": "c"}}
    bare = int(model(**tiny("llama", architectures=["LlamaModel"])).total_params)
    assert int(model(**tiny("llama", architectures=[head], **labels)).total_params) - bare == more


@pytest.mark.parametrize(
    "found",
    [
        tiny("qwen2", is_causal=False),
        tiny("gemma3_text", sliding_window=16, use_bidirectional_attention=True, architectures=["Gemma3TextModel"]),
        tiny("bert", architectures=["BertForMaskedLM"]),
        tiny("xlm-roberta", architectures=["XLMRobertaForSequenceClassification"]),
        {"model_type": "t5", "architectures": ["T5EncoderModel"], "d_model": 64, "d_ff": 96, "num_layers": 2, "num_heads": 4},
    ],
    ids=["qwen2", "gemma3_text", "bert", "xlm-roberta", "t5 encoder"],
)
def test_encoders_keep_no_cache_and_say_so(found: dict[str, Any]) -> None:
    """A model that attends in both directions has no layer groups, and a note in words."""
    m = model(**found)
    assert m.layers == ()
    assert any("keeps no KV cache" in note for note in m.notes)


@pytest.mark.parametrize(
    ("found", "heads"),
    [
        ({"model_type": "falcon", "hidden_size": 64, "n_layer": 2, "n_head": 8}, 1),
        ({"model_type": "falcon", "hidden_size": 64, "n_layer": 2, "n_head": 8, "multi_query": False}, 8),
        (
            {
                "model_type": "falcon",
                "hidden_size": 64,
                "n_layer": 2,
                "n_head": 8,
                "new_decoder_architecture": True,
                "num_kv_heads": 2,
            },
            2,
        ),
        ({"model_type": "gpt_bigcode", "n_embd": 64, "n_layer": 2, "n_head": 8}, 1),
        ({"model_type": "gpt_bigcode", "n_embd": 64, "n_layer": 2, "n_head": 8, "multi_query": False}, 8),
        (
            {
                "model_type": "chatglm",
                "hidden_size": 64,
                "num_layers": 2,
                "num_attention_heads": 8,
                "ffn_hidden_size": 96,
                "padded_vocab_size": 128,
                "multi_query_attention": True,
                "multi_query_group_num": 2,
            },
            2,
        ),
        (
            {
                "model_type": "mpt",
                "d_model": 64,
                "n_layers": 2,
                "n_heads": 8,
                "attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": 4},
            },
            4,
        ),
        ({"model_type": "mixformer-sequential", "n_embd": 64, "n_layer": 2, "n_head": 8, "n_head_kv": None, "vocab_size": 128}, 8),
    ],
)
def test_older_files_name_their_kv_heads_in_their_own_ways(found: dict[str, Any], heads: int) -> None:
    """Multi-query switches, groups and nulls give the KV heads that the published classes make of them."""
    m = model(**found)
    kind = m.layers[0].kind
    assert isinstance(kind, Full)
    assert int(kind.kv_heads) == heads


def block(heads: int | None, factor: float | None) -> dict[str, Any]:
    """One layer of a Nemotron-NAS file."""
    attention = {"n_heads_in_group": heads, "no_op": heads is None, "replace_with_linear": False, "window_length": None}
    return {"attention": attention, "ffn": {"ffn_mult": factor, "no_op": factor is None, "replace_with_linear": False}}


def test_searched_layers_may_lack_attention_or_mlp() -> None:
    """In Nemotron-NAS a layer without attention keeps nothing and has no norm before it; widths are two thirds of a factor, by 256."""
    blocks = [block(4, 2.0), block(None, 1.0), block(2, None)]
    m = model(
        model_type="nemotron-nas", hidden_size=512, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=None,
        intermediate_size=None, vocab_size=128, block_configs=blocks,
    )  # fmt: skip
    assert kinds(m) == [("full", (2,)), ("full", (0,)), ("none", (1,))]
    assert [int(g.kind.kv_heads) for g in m.layers if isinstance(g.kind, Full)] == [4, 2]
    # 2 * 2.0 * 512 / 3 = 682.67 -> 768; 2 * 1.0 * 512 / 3 = 341.33 -> 512
    assert sorted(int(p.rows) for p in m.parts if p.name == "up_proj") == [512, 768]
    assert [p.layers for p in m.parts if p.name == "input norm"] == [(0, 2)]
    odd = {"attention": {**blocks[0]["attention"], "window_length": 8}, "ffn": blocks[0]["ffn"]}
    with pytest.raises(ConfigError, match="window_length"):
        model(
            model_type="nemotron-nas",
            hidden_size=512,
            num_hidden_layers=1,
            num_attention_heads=8,
            vocab_size=128,
            block_configs=[odd],
        )


def test_latent_attention_stands_in_dense_models_too() -> None:
    """MiniCPM3 and Youtu keep one latent and one rotary key a token, whatever the heads; a null query rank leaves queries whole."""
    small = tiny("youtu", kv_lora_rank=16, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=8, q_lora_rank=None)
    for found in (small, {**small, "model_type": "minicpm3", "q_lora_rank": 12}):
        m = model(**found)
        (group,) = m.layers
        assert isinstance(group.kind, Latent)
        assert (int(group.kind.latent_rank), int(group.kind.rope_dim), m.kv_heads) == (16, 4, None)
        assert ("q_a_proj" in {p.name for p in m.parts}) == (found["q_lora_rank"] is not None)


def test_encoder_decoders_keep_their_own_tokens_and_the_encoders() -> None:
    """Each BART decoder layer stands in two groups; the encoder's length is its table of positions, and for T5 an assumption."""
    sides = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96}
    m = model(
        model_type="bart", d_model=64, encoder_layers=3, decoder_layers=2, vocab_size=128, max_position_embeddings=32, **sides
    )
    own, cross = m.layers
    assert own.indices == cross.indices == (0, 1)
    assert isinstance(cross.kind, Cross)
    assert int(cross.kind.encoder_tokens) == 32
    t5 = model(model_type="t5", d_model=64, d_ff=96, num_layers=3, num_decoder_layers=2, num_heads=4, vocab_size=128)
    assert len(t5.layers) == 2
    assert any("512 tokens" in said for said in t5.assumptions)


def test_draft_layers_stay_out_of_the_count() -> None:
    """MiMo's multi-token-prediction layer has weights and a cache of its own, beside the model's."""
    plain, drafted = model(**tiny("mimo")), model(**tiny("mimo", num_nextn_predict_layers=1))
    assert int(plain.total_params) == int(drafted.total_params)
    assert [g.indices for g in drafted.draft_layers] == [(8,)]
    assert not plain.draft_parts
    assert any(p.role is Role.DRAFT for p in drafted.draft_parts)


@given(layers=st.integers(1, 80), step=st.integers(1, 12))
def test_every_nth_layer_is_full(layers: int, step: int) -> None:
    """A step pattern leaves layers // step full layers, whatever the numbers, and loses no layer."""
    m = model(**tiny("gemma3_text", num_hidden_layers=layers, sliding_window=16, sliding_window_pattern=step))
    full = dict(kinds(m)).get("full", ())
    assert len(full) == layers // step
    assert sorted(full + sliding(m)) == list(range(layers))
