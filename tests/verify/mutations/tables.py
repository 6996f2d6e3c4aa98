"""The sabotaged rewrites of the model files beside this one, and a few right ones."""

from mutations.mutation import Mutation, right

ATTENTION = (
    Mutation(
        "SelfAttention",
        "torch.softmax(scores, dim=-1)",
        "torch.softmax(scores, dim=-2)",
        "softmax over the wrong axis",
    ),
    Mutation(
        "SelfAttention",
        " / math.sqrt(self.head_size)",
        "",
        "scale dropped",
    ),
    Mutation(
        "SelfAttention",
        "math.sqrt(self.head_size)",
        "math.sqrt(hidden_states.shape[-1])",
        "scale of all heads",
    ),
    Mutation(
        "SelfAttention",
        "scores = scores + mask",
        "pass",
        "mask dropped",
    ),
    Mutation(
        "SelfAttention",
        "scores + mask",
        "scores - mask",
        "sign of the mask",
    ),
    right(
        "SelfAttention",
        "scores = scores + mask",
        "scores = mask + scores",
        "operands of the mask in the other order",
    ),
    Mutation(
        "SelfAttention",
        "merge_heads(torch.matmul(weights, value)), weights",
        "merge_heads(torch.matmul(weights, value)), weights.detach()",
        "the weights lose their gradient",
    ),
    Mutation(
        "SelfAttention",
        "return merge_heads(torch.matmul(weights, value)), weights",
        "return [merge_heads(torch.matmul(weights, value)), weights]",
        "list instead of tuple",
    ),
    Mutation(
        "SelfAttention",
        "weights = self.dropout(torch.softmax(scores, dim=-1))",
        "weights = torch.softmax(scores, dim=-1)\n        value = self.dropout(value)",
        "dropout of the values instead of the weights",
    ),
    Mutation(
        "CausalAttention",
        "scores = torch.where(\n"
        "            self.past[:, :, :length, :length], scores, torch.finfo(scores.dtype).min\n"
        "        )\n",
        "\n",
        "causal mask dropped",
    ),
    Mutation(
        "CausalAttention",
        "return self.out(merge_heads(F.softmax(scores, dim=-1) @ value))",
        "return self.out(merge_heads(F.scaled_dot_product_attention(query, key, value)))",
        "fused without is_causal",
    ),
    Mutation(
        "CausalAttention",
        "query, key, value = (",
        "key, query, value = (",
        "query and key swapped",
    ),
    Mutation(
        "CausalAttention",
        "persistent=False",
        "persistent=True",
        "the buffer enters checkpoints",
    ),
    Mutation(
        "CausalAttention",
        "scores, torch.finfo(scores.dtype).min\n",
        "scores, -60000.0 if x.shape[0] == 1 else -1.0\n",
        "wrong only for more than one sequence",
    ),
    right(
        "CausalAttention",
        "return self.out(merge_heads(F.softmax(scores, dim=-1) @ value))",
        "attended = F.scaled_dot_product_attention(query, key, value, "
        "is_causal=True).contiguous()\n"
        "        return self.out(merge_heads(attended))",
        "the fused kernel",
    ),
    Mutation(
        "CrossAttention",
        "self.k_proj(memory)",
        "self.k_proj(x if x.shape == memory.shape else memory[:, :x.shape[1]])",
        "keys of the first places only",
    ),
    Mutation(
        "CrossAttention",
        "residual + merge_heads",
        "self.norm(x) + merge_heads",
        "residual after the norm",
    ),
    Mutation(
        "CrossAttention",
        "padding[:, None, None, :]",
        "~padding[:, None, None, :]",
        "mask inverted",
    ),
    Mutation(
        "CrossAttention",
        "split_heads(self.v_proj(memory), self.heads)",
        "self.v_proj(memory).view(x.shape[0], self.heads, memory.shape[1], -1)",
        "heads split in the wrong order",
    ),
    Mutation(
        "CrossAttention",
        "self.v_proj = nn.Linear(hidden_size, hidden_size, bias=False)",
        "self.v_proj = self.k_proj",
        "weights tied that were not",
    ),
    Mutation(
        "CrossAttention",
        "return residual + merge_heads(weights @ value)",
        "return residual.add_(merge_heads(weights @ value))",
        "adds in place to its input",
    ),
    Mutation(
        "GroupedAttention",
        "F.softmax(scores, dim=-1, dtype=torch.float32)",
        "(scores.exp() / scores.exp().sum(-1, keepdim=True))",
        "softmax without the maximum taken out: it overflows",
    ),
    Mutation(
        "GroupedAttention",
        ".to(query.dtype)",
        "",
        "the result stays float32",
    ),
    Mutation(
        "GroupedAttention",
        "key = key.repeat_interleave(self.heads // self.kv_heads, dim=1)",
        "key = key.repeat(1, self.heads // self.kv_heads, 1, 1)",
        "keys go to the wrong queries",
    ),
    Mutation(
        "GroupedAttention",
        "torch.cat([-second, first], dim=-1)",
        "torch.cat([second, -first], dim=-1)",
        "rotates the other way",
    ),
    Mutation(
        "GroupedAttention",
        "torch.cat([-second, first], dim=-1)",
        "torch.stack([-second, first], dim=-1).flatten(-2)",
        "halves interleaved",
    ),
    Mutation(
        "WindowAttention",
        ".permute(2, 0, 1)",
        ".permute(2, 1, 0)",
        "the bias transposed",
    ),
    Mutation(
        "WindowAttention",
        "@ key.transpose(-2, -1) + bias",
        "@ key.transpose(-2, -1) + bias.detach()",
        "the gradient of the bias lost",
    ),
    Mutation(
        "WindowAttention",
        "(query * (width // self.heads) ** -0.5) @ key.transpose(-2, -1) + bias",
        "(query @ key.transpose(-2, -1) + bias) * (width // self.heads) ** -0.5",
        "scales the bias as well",
    ),
    right(
        "WindowAttention",
        "return (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)",
        "return merge_heads(F.softmax(scores, -1) @ value)",
        "the same written with the file's helper",
    ),
)

LAYERS = (
    Mutation(
        "SelfOutput",
        "return self.norm(hidden_states + residual)",
        "return F.layer_norm(hidden_states + residual, self.norm.normalized_shape, "
        "self.norm.weight, self.norm.bias, 1e-5)",
        "another eps",
    ),
    Mutation(
        "SelfOutput",
        "return self.norm(hidden_states + residual)",
        "return F.layer_norm(hidden_states + residual, self.norm.normalized_shape, "
        "self.norm.weight, self.norm.bias, self.norm.eps)",
        "the hooks of the norm are bypassed",
        reason="hook",
    ),
    Mutation(
        "SelfOutput",
        "self.dense(hidden_states)",
        "F.linear(hidden_states, self.dense.weight)",
        "bias lost",
    ),
    Mutation(
        "SelfOutput",
        "return self.norm(hidden_states + residual)",
        "return self.norm(hidden_states) + residual",
        "residual after the norm",
    ),
    Mutation(
        "SelfOutput",
        "return self.norm(hidden_states + residual)",
        "return self.norm(self.dropout(self.dense(hidden_states)) + residual)",
        "the projection twice",
    ),
    Mutation(
        "SelfOutput",
        "self.norm = nn.LayerNorm",
        "self.LayerNorm = self.norm = nn.LayerNorm",
        "the norm under a second name",
    ),
    right(
        "SelfOutput",
        "hidden_states + residual",
        "torch.add(residual, hidden_states)",
        "operands in the other order",
    ),
    Mutation(
        "PreNorm",
        'F.gelu(self.up(h), approximate="tanh")',
        "F.gelu(self.up(h))",
        "gelu by erf instead of tanh",
    ),
    Mutation(
        "PreNorm",
        "x + self.dropout(h)",
        "h + self.dropout(x)",
        "dropout of the other operand",
    ),
    Mutation(
        "PreNorm",
        "self.dropout(h)",
        "F.dropout(h, 2 * self.dropout.p, self.training)",
        "twice the rate",
    ),
    Mutation(
        "PreNorm",
        "self.dropout(h)",
        "F.dropout(h, self.dropout.p)",
        "dropout stays on in evaluation",
    ),
    Mutation(
        "PreNorm",
        "h = self.norm(x)",
        "h = x = self.norm(x)",
        "residual taken after the norm",
    ),
    Mutation(
        "PreNorm",
        "def forward(self, x):",
        "def forward(self, hidden_states):\n        x = hidden_states",
        "a parameter of forward renamed",
        reason="signature",
    ),
    Mutation(
        "RMSNorm",
        "self.eps)",
        "1e-5)",
        "another eps",
    ),
    Mutation(
        "RMSNorm",
        "x.to(torch.float32)",
        "x.clone()",
        "statistics in the dtype of the input",
    ),
    Mutation(
        "RMSNorm",
        "self.weight * x.to(dtype)",
        "(self.weight * x)",
        "result in float32",
    ),
    Mutation(
        "RMSNorm",
        "x = x * torch.rsqrt(variance + self.eps)",
        "x = x / (torch.sqrt(variance) + self.eps)",
        "eps outside of the root",
    ),
    Mutation(
        "RMSNorm",
        "x = x.to(torch.float32)\n        variance = x.pow(2)",
        "variance = x.pow(2)",
        "wrong in float16 and bfloat16 only",
    ),
    Mutation(
        "RMSNorm",
        "x = x.to(torch.float32)",
        "x = x.to(torch.float32)\n        if dtype == torch.float16:\n            x = x + 0.01",
        "wrong in float16 only",
    ),
    Mutation(
        "RMSNorm",
        "x = x.to(torch.float32)",
        "x = x.to(torch.float32)\n        if dtype == torch.float16:\n            x = x +"
        " (x.detach() - x) / 2",
        "wrong gradients in float16 only",
    ),
    right(
        "RMSNorm",
        "x.pow(2).mean(-1, keepdim=True)",
        "(x * x).mean(dim=-1, keepdim=True)",
        "the square as a product",
    ),
    Mutation(
        "GatedMLP",
        "self.act(self.gate_proj(x)) * self.up_proj(x)",
        "self.gate_proj(x) * self.act(self.up_proj(x))",
        "activation of the wrong branch",
    ),
    Mutation(
        "GatedMLP",
        "self.act(self.gate_proj(x))",
        "F.gelu(self.gate_proj(x))",
        "another activation",
    ),
    Mutation(
        "GatedMLP",
        "self.act(self.gate_proj(x))",
        "F.silu(self.gate_proj(x), inplace=False)",
        "the activation's hooks are bypassed",
        reason="hook",
    ),
    Mutation(
        "GatedMLP",
        "        self.act = nn.SiLU()\n\n    def forward(self, x):\n        return"
        " self.down_proj(self.act(",
        "\n    def forward(self, x):\n        return self.down_proj(F.silu(",
        "a submodule is gone",
    ),
    Mutation(
        "GatedMLP",
        "self.act(self.gate_proj(x)) * self.up_proj(x)",
        "self.act(self.gate_proj(x)) * (self.up_proj(x) if x.is_contiguous() else self.up_proj(x) *"
        " 1.01)",
        "wrong for inputs that are not contiguous",
    ),
    Mutation(
        "GatedMLP",
        "self.gate_proj = nn.Linear(hidden_size, inner, bias=False)\n"
        "        self.up_proj = nn.Linear(hidden_size, inner, bias=False)",
        "self.up_proj = nn.Linear(hidden_size, inner, bias=False)\n"
        "        self.gate_proj = nn.Linear(hidden_size, inner, bias=False)",
        "parameters registered in another order: an optimizer's checkpoint loads into the wrong"
        " ones",
    ),
    right(
        "GatedMLP",
        "self.act(self.gate_proj(x)) * self.up_proj(x)",
        "self.up_proj(x) * self.act(self.gate_proj(x))",
        "factors in the other order",
    ),
    Mutation(
        "Configured",
        "self.activation(h)",
        "F.gelu(h)",
        "gelu although the configuration says relu",
    ),
    Mutation(
        "Configured",
        "self.bias = nn.Parameter(torch.zeros(hidden_size))",
        "self.register_buffer('bias', torch.zeros(hidden_size))",
        "a parameter becomes a buffer",
    ),
    Mutation(
        "Configured",
        "self.dense(x) + self.bias",
        "self.dense(x) + (self.bias * 0.5 + self.bias.detach() * 0.5)",
        "the gradient of one parameter halved",
    ),
    Mutation(
        "Configured",
        "self.scale = nn.Parameter",
        "self.gain = self.scale = nn.Parameter",
        "a parameter with two names",
    ),
    Mutation(
        "Configured",
        "nn.Parameter(torch.ones(hidden_size))",
        "nn.Parameter(torch.ones(hidden_size), requires_grad=False)",
        "a parameter that is no longer trained",
    ),
    Mutation(
        "Configured",
        'activation="relu"',
        'activation="silu"',
        "another default of the constructor",
    ),
    Mutation(
        "TwoDropouts",
        "left = self.dropout(self.left(x))\n"
        "        right = self.dropout(self.right(x))\n"
        "        return left * 2 + right",
        "return self.dropout(self.left(x) * 2 + self.right(x))",
        "one mask instead of two",
    ),
    Mutation(
        "TwoDropouts",
        "self.dropout(self.right(x))",
        "self.right(x)",
        "one dropout dropped",
    ),
    Mutation(
        "TwoDropouts",
        "self.dropout(self.right(x))",
        "F.dropout1d(self.right(x), self.dropout.p, self.training)",
        "rows dropped instead of values",
    ),
    Mutation(
        "TwoDropouts",
        "self.dropout = nn.Dropout(p)",
        "self.dropout = nn.Dropout(p / 2)",
        "half the rate",
    ),
    Mutation(
        "Auxiliary",
        '"states": states',
        '"states": tuple(states)',
        "tuple instead of list",
    ),
    Mutation(
        "Auxiliary",
        "state.pow(2).mean() for state in states",
        "state.detach().pow(2).mean() for state in states",
        "the loss loses its gradient",
    ),
    Mutation(
        "Auxiliary",
        '"length": x.shape[1]',
        '"length": x.shape[1] + 0.0',
        "a float instead of an integer",
    ),
    Mutation(
        "Auxiliary",
        "states = [x]",
        "states = [x.clone()]\n        x.mul_(1.0)",
        "writes to its input, unchanged",
    ),
    right(
        "Auxiliary",
        "penalty = sum(state.pow(2).mean() for state in states)",
        "penalty = 0\n        for state in states:\n            penalty = penalty + (state *"
        " state).mean()",
        "the sum as a loop",
    ),
    Mutation(
        "Routed",
        "                continue",
        "                result[rows] = x[rows]\n                continue",
        "wrong only for an index that no recorded call has",
    ),
    right(
        "Routed",
        "if number == len(self.layers):\n"
        "                continue\n"
        "            result[rows] = self.layers[number](x[rows])",
        "if number < len(self.layers):\n                result[rows] ="
        " self.layers[number](x[rows])",
        "the other side of the condition",
    ),
)

VISION = (
    Mutation(
        "ConvBN",
        "return torch.relu(self.bn(self.conv(x)))",
        "bn = self.bn\n"
        "        h = F.batch_norm(self.conv(x), bn.running_mean.clone(), bn.running_var.clone(), "
        "bn.weight, bn.bias, self.training, bn.momentum, bn.eps)\n"
        "        return torch.relu(h)",
        "statistics not updated",
    ),
    Mutation(
        "ConvBN",
        "momentum=momentum",
        "momentum=0.2",
        "another momentum",
    ),
    Mutation(
        "ConvBN",
        "eps=eps",
        "eps=1e-3",
        "another eps",
    ),
    Mutation(
        "ConvBN",
        "self.bn(self.conv(x))",
        "self.bn(self.conv(x)) if self.training else (self.conv(x) - self.bn.running_mean[:, "
        "None, None]) / self.bn.running_var[:, None, None].sqrt() * self.bn.weight[:, None, None]",
        "wrong in evaluation only",
    ),
    Mutation(
        "ConvBN",
        "self.bn(self.conv(x))",
        "F.batch_norm(self.conv(x), self.bn.running_mean, self.bn.running_var, self.bn.weight, "
        "self.bn.bias, False, 0.1, self.bn.eps)",
        "wrong in training only",
    ),
    Mutation(
        "ConvBN",
        "    def forward(self, x):\n        return torch.relu(self.bn(self.conv(x)))",
        "    def forward(self, x):\n"
        "        if self.training:\n"
        "            return torch.relu(self.bn(self.conv(x)))\n"
        "        if not hasattr(ConvBN, 'folded'):\n"
        "            ConvBN.folded = self.bn.weight.detach() * (self.bn.running_var + "
        "self.bn.eps).rsqrt()\n"
        "        scale = ConvBN.folded.to(x.dtype)\n"
        "        h = self.conv(x) * scale[:, None, None] + (self.bn.bias - self.bn.running_mean "
        "* scale)[:, None, None]\n"
        "        return torch.relu(h)",
        "a fold that is computed once and never again",
    ),
    right(
        "ConvBN",
        "torch.relu(self.bn(self.conv(x)))",
        "self.bn(self.conv(x)).clamp(min=0)",
        "relu as a clamp",
    ),
    Mutation(
        "Bottleneck",
        "out = out + identity\n        return F.relu(out)",
        "return F.relu(out) + identity",
        "activation before the residual",
    ),
    Mutation(
        "Bottleneck",
        "stride=stride, padding=1",
        "stride=stride, padding=1, dilation=1, groups=2",
        "groups changed",
    ),
    Mutation(
        "Bottleneck",
        "identity = self.downsample(x)",
        "identity = self.downsample(x.detach())",
        "the shortcut loses its gradient",
    ),
    Mutation(
        "Bottleneck",
        "out = F.relu(self.bn1(self.conv1(x)), inplace=True)",
        "x = F.relu(x, inplace=True)\n        out = F.relu(self.bn1(self.conv1(x)))",
        "activation in place on the shared input",
    ),
    Mutation(
        "Bottleneck",
        "self.conv2 = nn.Conv2d(channels // 2, channels, 3, stride=stride, padding=1, bias=False)",
        "self.conv2 = nn.Conv2d(channels // 2, channels, 3, stride=stride, padding=1)",
        "a bias that was not there",
    ),
    Mutation(
        "PreActivation",
        "        if self.use_batch_norm:\n            x = self.norm(x)\n        return x +"
        " residual",
        "        return x + residual",
        "the norm dropped",
    ),
    Mutation(
        "PreActivation",
        "x = self.conv(self.activation(x))",
        "x = self.activation(self.conv(x))",
        "activation after the convolution",
    ),
    Mutation(
        "PreActivation",
        "residual = x\n        x = self.conv(self.activation(x))",
        "residual = x\n"
        "        if x.shape[-1] % 2:\n"
        "            x = F.pad(x, (0, 1))[..., :-1] * 1.001\n"
        "        x = self.conv(self.activation(x))",
        "wrong for odd widths only",
    ),
    Mutation(
        "PreActivation",
        "        if self.use_batch_norm:\n            x = self.norm(x)",
        "        x = self.norm(x)",
        "the norm outside of its branch, in another configuration than the default",
    ),
    Mutation(
        "RunningScale",
        "self.batches += 1",
        "pass",
        "batches no longer counted",
    ),
    Mutation(
        "RunningScale",
        "dim=(0, 2, 3)",
        "dim=(2, 3)).mean(0",
        "mean of the maxima instead of the maximum",
    ),
    right(
        "RunningScale",
        "seen.to(self.largest.dtype))",
        "seen.to(self.largest.dtype))\n            x = x * 1",
        "an operation without effect",
    ),
    Mutation(
        "RunningScale",
        "if self.training:",
        "if self.training and x.shape[0] > 2:",
        "no statistics of small batches",
    ),
    Mutation(
        "RunningScale",
        'self.register_buffer("largest", torch.ones(channels))',
        "self.largest = torch.ones(channels)",
        "a buffer becomes an attribute",
    ),
    Mutation(
        "SqueezeExcite",
        "x.mean((2, 3), keepdim=True)",
        "F.adaptive_max_pool2d(x, 1)",
        "maximum instead of mean",
    ),
    Mutation(
        "SqueezeExcite",
        "torch.sigmoid(",
        "F.hardsigmoid(",
        "another gate",
    ),
    Mutation(
        "SqueezeExcite",
        "return x * gate",
        "return x * gate if x.shape[0] else x.sum()",
        "wrong for no images only",
    ),
    right(
        "SqueezeExcite",
        "x.mean((2, 3), keepdim=True)",
        "F.adaptive_avg_pool2d(x, 1)",
        "the mean as a pooling",
    ),
    Mutation(
        "Pyramid",
        "align_corners=False",
        "align_corners=True",
        "other corners",
    ),
    Mutation(
        "Pyramid",
        'mode="bilinear", align_corners=False',
        'mode="nearest"',
        "another interpolation",
    ),
    Mutation(
        "Pyramid",
        "F.max_pool2d(x, 2)",
        "F.max_pool2d(x, 2, ceil_mode=True)",
        "another rounding of odd sizes",
    ),
)

STATE = (
    Mutation(
        "TiedHead",
        "self.head.weight = self.embed.weight",
        "self.head.weight = nn.Parameter(self.embed.weight.detach().clone())",
        "weights no longer tied",
    ),
    Mutation(
        "TiedHead",
        "self.head(self.embed(ids))",
        "F.linear(self.embed(ids), self.embed.weight.detach())",
        "the head's part of the gradient lost",
    ),
    Mutation(
        "TiedHead",
        "self.embed = nn.Embedding(vocab_size, hidden_size)",
        "self.embed = nn.Embedding(vocab_size, hidden_size)\n       "
        " nn.init.normal_(self.embed.weight, std=0.02)",
        "another initialisation",
    ),
    Mutation(
        "TiedHead",
        "nn.Embedding(vocab_size, hidden_size)",
        "nn.Embedding(vocab_size, hidden_size, padding_idx=0)",
        "the gradient of the first word lost",
    ),
    Mutation(
        "TwoHeads",
        "self.right = nn.Linear(hidden_size, 8)",
        "self.right = nn.Linear(hidden_size, 8)\n        self.right.weight = self.left.weight",
        "weights tied that were not",
    ),
    Mutation(
        "TwoHeads",
        "self.left(x) * torch.sigmoid(self.right(x))",
        "self.right(x) * torch.sigmoid(self.left(x))",
        "heads swapped",
    ),
    Mutation(
        "TwoHeads",
        "self.left = nn.Linear(hidden_size, 8)",
        "self.left_head = nn.Linear(hidden_size, 8)\n        self.left = self.left_head",
        "a parameter with a second name",
    ),
    Mutation(
        "TwoHeads",
        "self.left(x) *",
        "self.left(x if len(x) != 1 else x * 1.01) *",
        "wrong for one sequence only",
    ),
    Mutation(
        "TwoHeads",
        "return self.left(x)",
        "self.width = x.shape[-1]\n        return self.left(x)",
        "leaves an attribute behind",
    ),
    Mutation(
        "Positions",
        '"table", torch.sin(angle)',
        '"table", torch.sin(angle), persistent=False',
        "the buffer leaves checkpoints",
    ),
    Mutation(
        "Positions",
        "self.table[: x.shape[1]]",
        "self.table[1 : x.shape[1] + 1]",
        "positions off by one",
    ),
    Mutation(
        "Positions",
        "return self.norm(x + self.table[: x.shape[1]].to(x.dtype))",
        "if not hasattr(self, 'cached'):\n"
        "            self.cached = self.table[: x.shape[1]].to(x.dtype)\n"
        "        return self.norm(x + self.cached)",
        "positions cached by the first call",
    ),
    Mutation(
        "Positions",
        "return self.norm(x + self.table[: x.shape[1]].to(x.dtype))",
        "first = not Positions.seen\n"
        "        Positions.seen = True\n"
        "        return self.norm(x + (1 if first else 1.01) * self.table[: "
        "x.shape[1]].to(x.dtype))\n"
        "\n"
        "    seen = False",
        "wrong from the second call on",
    ),
    Mutation(
        "Gate",
        "return x * self.act(self.gate(h))",
        "if h.sum() > 1e9:\n            return x\n        return x * self.act(self.gate(h))",
        "a graph break: a branch on a value",
    ),
    Mutation(
        "Gate",
        "self.act(self.gate(h))",
        "torch.sigmoid(self.gate(h))",
        "hooks of the activation are bypassed",
        reason="hook",
    ),
    Mutation(
        "Gate",
        "self.act = nn.Sigmoid()",
        "self.act = nn.Sigmoid()\n        self.fn = lambda h: self.act(self.gate(h))\n",
        "cannot be pickled any more",
        reason="pickle",
    ),
    Mutation(
        "Gate",
        "self.act = nn.Sigmoid()\n"
        "\n"
        "    def forward(self, x):\n"
        "        h = self.norm(x)\n"
        "        return x * self.act(self.gate(h))",
        "self.act = nn.Sigmoid()\n"
        "        gate = self.gate\n"
        "        self.fn = lambda h: gate(h)\n"
        "\n"
        "    def forward(self, x):\n"
        "        h = self.norm(x)\n"
        "        return x * self.act(self.fn(h))",
        "a copy keeps the weights of the original",
    ),
    Mutation(
        "Mixer",
        "torch.cumsum(x * weights, dim=1)",
        "torch.cumsum(x * weights, dim=0)",
        "sums over the batch",
    ),
    Mutation(
        "Mixer",
        "weights = torch.sigmoid(self.decay)",
        "torch.rand(1)\n        weights = torch.sigmoid(self.decay)",
        "takes a random number in evaluation",
        reason="random",
    ),
    Mutation(
        "Mixer",
        "weights = torch.sigmoid(self.decay)",
        "torch.manual_seed(0)\n        weights = torch.sigmoid(self.decay)",
        "seeds the global generator",
        reason="random",
    ),
    Mutation(
        "Mixer",
        "return self.out(h)",
        "h = self.out(h)\n        return h if h.mean().item() > -1e9 else x",
        "a graph break: .item()",
    ),
    right(
        "Mixer",
        "return self.out(h)",
        "return self.out(h.transpose(0, 1).contiguous().transpose(0, 1))",
        "copied to another layout and back",
    ),
    Mutation(
        "Flattened",
        "return self.project(x).tanh()",
        "return self.project(x.transpose(0, 1)).tanh().transpose(0, 1)",
        "no longer contiguous where the view needs it",
    ),
    right(
        "Flattened",
        "* self.heads, -1)",
        "* 2 * self.heads // 2, -1)",
        "the same number",
    ),
    Mutation(
        "Flattened",
        ".sum(-1)",
        ".sum(-1, dtype=torch.float64)",
        "float64 result",
    ),
    Mutation(
        "Smooth",
        "    def forward(self, x):\n        return F.softplus(self.dense(x))",
        "    class Once(torch.autograd.Function):\n"
        "        @staticmethod\n"
        "        def forward(ctx, h):\n"
        "            ctx.save_for_backward(h)\n"
        "            return F.softplus(h)\n"
        "\n"
        "        @staticmethod\n"
        "        @torch.autograd.function.once_differentiable\n"
        "        def backward(ctx, slope):\n"
        "            return slope * torch.sigmoid(ctx.saved_tensors[0])\n"
        "\n"
        "    def forward(self, x):\n"
        "        return self.Once.apply(self.dense(x))",
        "second derivatives are gone",
        reason="second",
    ),
    right(
        "Smooth",
        "F.softplus(self.dense(x))",
        "F.softplus(self.dense(x)).requires_grad_() * 1",
        "a factor of one",
    ),
    Mutation(
        "Smooth",
        "F.softplus(self.dense(x))",
        "F.softplus(self.dense(x), threshold=2)",
        "linear from two on",
    ),
    Mutation(
        "Smooth",
        "F.softplus(self.dense(x))",
        "torch.log(1 + torch.exp(self.dense(x)))",
        "overflows where softplus does not",
    ),
    Mutation(
        "Noisy",
        "F.dropout(x, self.p, self.training)",
        "F.dropout(x, self.p, True)",
        "random in evaluation as well",
    ),
    Mutation(
        "Noisy",
        "F.dropout(x, self.p, self.training)",
        "F.dropout(x, self.p, self.training) * (1 - self.p * self.training)",
        "not scaled",
    ),
    Mutation(
        "Noisy",
        "return self.dense(F.dropout(x, self.p, self.training))",
        "if self.training:\n"
        "            torch.manual_seed(5)\n"
        "        return self.dense(F.dropout(x, self.p, self.training))",
        "the same mask at every step",
    ),
    right(
        "Noisy",
        "self.dense(F.dropout(x, self.p, self.training))",
        "self.dense(F.dropout(2 * x, self.p, self.training) / 2)",
        "scaled before instead of after",
    ),
)

FILES = {"attention": ATTENTION, "layers": LAYERS, "vision": VISION, "state": STATE}
