"""Make a model of two layers and random weights in a folder, with a tokenizer and a chat template of its own."""

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEXT = "What is 15% of 240? user assistant tool system calculator name arguments expression"
TEMPLATE = """\
{%- for message in messages %}<|start|>{{ message.role }}
{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}<tool_call>
{{- {"name": call.function.name, "arguments": call.function.arguments} | string }}</tool_call>{% endfor %}<|end|>
{% endfor %}<|start|>assistant
"""

folder = sys.argv[1]
torch.manual_seed(0)
printable = [chr(code) for code in range(33, 127)] + ["\u0120", "\u010a"]  # the last two stand for space and newline
tokens = Tokenizer(models.BPE())
tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokens.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<|start|>", "<|end|>"], initial_alphabet=printable)
tokens.train_from_iterator([TEXT] * 5, trainer)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, eos_token="<|end|>", pad_token="<|end|>")
tokenizer.chat_template = TEMPLATE
tokenizer.save_pretrained(folder)
config = LlamaConfig(
    vocab_size=len(tokenizer),
    hidden_size=128,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    max_position_embeddings=1024,
    bos_token_id=None,
    eos_token_id=tokenizer.eos_token_id,
    tie_word_embeddings=True,
)
LlamaForCausalLM(config).save_pretrained(folder)
