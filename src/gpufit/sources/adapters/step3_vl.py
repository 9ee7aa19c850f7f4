"""Step 3: one KV head for all queries, which come out of a shared bottleneck (multi-matrix factorisation attention), and a mixture."""

from __future__ import annotations

from gpufit.errors import ConfigError
from gpufit.model import Role, Shard
from gpufit.sources.adapters.step3p5 import EXPERT_NAMES, SHARED_NAMES, TOP_NAMES
from gpufit.sources.adapters.step3p5 import mixture_layers as listed_layers
from gpufit.sources.config import Config
from gpufit.sources.decoder import Decoder, open_decoder
from gpufit.sources.dense import output
from gpufit.sources.patterns import class_defaults, pre_norms, without
from gpufit.sources.states import say_defaults
from gpufit.sources.towers import Tower, channels_of, depth_of, image_of, inner_of, patch_of, projector, width_of

MODEL_TYPES = ("step3_vl", "step3_text")
ARCHITECTURES = ("Step3VLForConditionalGeneration", "Step3TextForCausalLM")
INERT = frozenset({"norm_expert_weight", "image_token_len", "patch_token_len", "ues_cls_token", "use_cls_token"})
CLASS = "Step3TextConfig (vLLM 0.33.0)"
TEXT = class_defaults(
    CLASS, hidden_size=7168, intermediate_size=18432, num_attention_heads=64, num_attention_groups=1, num_hidden_layers=61,
    max_seq_len=65536, vocab_size=128815, moe_intermediate_size=5120, moe_num_experts=48, moe_top_k=3, share_expert_dim=5120,
    share_q_dim=2048, head_dim=256, moe_layers_enum=list(range(4, 60)),
)  # fmt: skip
VISION = class_defaults(
    "Step3VisionEncoderConfig (vLLM 0.33.0)", hidden_size=1792, intermediate_size=3072, output_hidden_size=4096, num_hidden_layers=63,
    num_channels=3, image_size=728, patch_size=14,
)  # fmt: skip


def read(config: Config) -> Decoder:
    """Nothing in vLLM's class ties the output head."""
    text = config.sub("text_config") or config
    if text.path:
        text.fall_back(TEXT)
    d = open_decoder(text, tie_default=False, tie_from=config)
    groups = text.integer("num_attention_groups", "num_key_value_heads")
    if groups != 1:
        raise ConfigError(f"{text.where('num_attention_groups')} is {groups}", hint="one, as published, is understood")
    d.kv_heads = text.item(1, "num_attention_groups", symbol="n_kv", label="KV heads")
    d.full(d.all)
    output(d)
    _attention(d)
    text.ignore("max_position_embedding", "moe_layer_offset", "moe_every_n_layer")
    sparse = listed_layers(d, int(d.num_layers), 0)
    dense = without(d.all, sparse)
    if dense:
        d.mlp(dense, text.count("intermediate_size", symbol="I", label="MLP width"))
    if sparse:
        _mixture(d, sparse)
    pre_norms(d)
    if config is not text:
        _vision(d, config)
    say_defaults(d)
    return d


def _attention(d: Decoder) -> None:
    """One matrix for the bottleneck, the key and the value, whole on every rank; queries are made of the normed bottleneck."""
    heads, dim = d.need(d.attention_heads), d.need(d.head_dim)
    shared = d.config.maybe("share_q_dim", symbol="r_q", label="shared query width") or dim
    at, role = "layers.{i}.self_attn", Role.ATTENTION
    for name, rows in (("q_proj", shared), ("k_proj", dim), ("v_proj", dim)):
        d.linear(name, role, f"{at}.{name}", rows, d.hidden, layers=d.all, shard=Shard.REPLICATED)
    d.norm("query norm", f"{at}.inter_norm", layers=d.all, size=shared)
    d.linear("wq", role, f"{at}.wq", heads * dim, shared, layers=d.all, shard=Shard.COLUMN)
    d.linear("o_proj", role, f"{at}.o_proj", d.hidden, heads * dim, layers=d.all, shard=Shard.ROW)


def _mixture(d: Decoder, sparse: tuple[int, ...]) -> None:
    """Experts in one tensor a projection, and one expert that every token visits."""
    c = d.config
    experts = c.count(*EXPERT_NAMES, symbol="E", label="routed experts")
    used = c.count(*TOP_NAMES, symbol="E_k", label="experts per token")
    d.part("router", Role.ROUTER, "layers.{i}.moe.gate", experts, d.hidden, layers=sparse)
    width = c.count("moe_intermediate_size", symbol="I_e", label="expert width")
    d.mlp(sparse, width, module="layers.{i}.moe", role=Role.ROUTED_EXPERTS, label="expert ", copies=experts, active=(used, experts))
    shared = c.count(*SHARED_NAMES, symbol="I_s", label="shared expert width")
    d.shared_experts(sparse, shared, module="layers.{i}.share_expert")


def _vision(d: Decoder, config: Config) -> None:
    """A CLIP-like tower without outer norms, two strided convolutions and one projection (vLLM 0.33.0, step3_vl.py)."""
    v = config.sub("vision_config")
    if v is None:
        raise config.missing("vision_config")
    v.fall_back(VISION)
    v.ignore("num_attention_heads", "num_heads")
    config.ignore("understand_projector_stride", "hidden_size")
    width, patch = width_of(v, "hidden_size", "width"), patch_of(v)
    edge = image_of(v) // patch
    t = Tower(decoder=d, role=Role.VISION, prefix="vision_model.", width=width, depth=depth_of(v, "num_hidden_layers", "layers"),
              block="transformer.layers.{e}.")  # fmt: skip
    t.part("class token", "embeddings.class_embedding", width)
    t.patches("embeddings.patch_embedding", channels_of(v) * patch * patch, bias=True)
    t.part("positions", "embeddings.position_embedding", edge * edge + 1, width)
    t.norms("layer_norm1", "layer_norm2", bias=True)
    t.qkv("self_attn.qkv_proj", "self_attn.out_proj")
    t.mlp(inner_of(v, "intermediate_size"))
    out = v.count("output_hidden_size", symbol="H_vo", label="tower output width")
    p = projector(d, "", out)
    twice = (2 * out).as_step("H_p", "projector width")
    p.part("convolution 1", "vit_downsampler", out, 4 * width)
    p.part("convolution 1 bias", "vit_downsampler.bias", out)
    p.part("convolution 2", "vit_downsampler2", twice, 9 * out)
    p.part("convolution 2 bias", "vit_downsampler2.bias", twice)
    p.matrix("output", "vit_large_projector", d.hidden, twice, bias=config.flag("projector_bias"))
