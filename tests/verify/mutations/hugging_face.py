"""Sabotaged rewrites of real modeling files: the text is replaced in the installed file while the
tests run."""

from mutations.mutation import Mutation, right

BERT = (
    Mutation(
        "BertSelfOutput",
        "self.LayerNorm(hidden_states + input_tensor)",
        "self.LayerNorm(hidden_states) + input_tensor",
        "residual after the norm",
    ),
    Mutation(
        "BertOutput",
        "hidden_states = self.dropout(hidden_states)\n",
        "input_tensor = self.dropout(input_tensor)\n",
        "dropout of the other operand",
    ),
    Mutation(
        "BertIntermediate",
        "self.intermediate_act_fn(hidden_states)",
        'nn.functional.gelu(hidden_states, approximate="tanh")',
        "gelu by tanh, whatever the configuration says",
    ),
    Mutation(
        "eager_attention_forward",
        "attn_weights = attn_weights + attention_mask",
        "pass",
        "mask dropped",
    ),
    Mutation(
        "BertPooler",
        "self.activation(pooled_output)",
        "torch.tanh(pooled_output)",
        "the activation's hooks are bypassed",
        reason="hook",
    ),
    right(
        "BertPredictionHeadTransform",
        "hidden_states = self.transform_act_fn(hidden_states)\n        hidden_states ="
        " self.LayerNorm(hidden_states)",
        "hidden_states = self.LayerNorm(self.transform_act_fn(hidden_states))",
        "two statements in one",
    ),
)
LLAMA = (
    Mutation(
        "LlamaRMSNorm",
        "hidden_states = hidden_states.to(torch.float32)\n",
        "\n",
        "statistics in the dtype of the input",
    ),
    Mutation(
        "LlamaMLP",
        "self.act_fn(self.gate_proj(x)) * self.up_proj(x)",
        "self.act_fn(self.gate_proj(x) * self.up_proj(x))",
        "activation of the product",
    ),
    Mutation(
        "apply_rotary_pos_emb",
        "k_embed = (k * cos) + (rotate_half(k) * sin)",
        "k_embed = (k * cos) - (rotate_half(k) * sin)",
        "keys rotate the other way",
    ),
    Mutation(
        "LlamaDecoderLayer",
        "hidden_states = self.post_attention_layernorm(hidden_states)\n",
        "hidden_states = residual = self.post_attention_layernorm(hidden_states)\n",
        "residual taken after the norm",
    ),
)
GPT2 = (
    Mutation(
        "GPT2MLP",
        "hidden_states = self.dropout(hidden_states)",
        "hidden_states = hidden_states",
        "dropout dropped",
    ),
    Mutation(
        "GPT2Block",
        "hidden_states = residual + feed_forward_hidden_states",
        "hidden_states = hidden_states + feed_forward_hidden_states",
        "residual taken after the norm",
    ),
)
T5 = (
    Mutation(
        "T5LayerNorm",
        "hidden_states.to(torch.float32).pow(2)",
        "(hidden_states - hidden_states.mean(-1, keepdim=True)).to(torch.float32).pow(2)",
        "a LayerNorm instead of an RMSNorm",
    ),
    Mutation(
        "T5LayerFF",
        "hidden_states = hidden_states + self.dropout(forwarded_states)",
        "hidden_states = self.dropout(hidden_states + forwarded_states)",
        "dropout of the sum",
    ),
    Mutation(
        "T5DenseActDense",
        "hidden_states = self.act(hidden_states)",
        "hidden_states = nn.functional.gelu(hidden_states)",
        "gelu although the configuration says relu",
    ),
)
RESNET = (
    Mutation(
        "ResNetConvLayer",
        "hidden_states = self.normalization(hidden_states)",
        "norm = self.normalization\n        hidden_states = nn.functional.batch_norm(hidden_states,"
        " norm.running_mean, norm.running_var, norm.weight, norm.bias, self.training, 0.2,"
        " norm.eps)",
        "another momentum",
    ),
    Mutation(
        "ResNetBasicLayer",
        "hidden_state += residual\n        hidden_state = self.activation(hidden_state)",
        "hidden_state = self.activation(hidden_state)\n        hidden_state += residual",
        "activation before the residual",
    ),
)
FILES = {"bert": BERT, "llama": LLAMA, "gpt2": GPT2, "t5": T5, "resnet": RESNET}
