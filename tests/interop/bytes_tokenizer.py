"""A tokenizer that is made here, as no hub is asked: a token for each byte, so that any text comes back."""


def tokenizer(*special, eos="<|im_end|>", template=None):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: at for at, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    words = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=eos, pad_token="<|pad|>")
    words.add_special_tokens({"additional_special_tokens": list(special)})
    words.chat_template = template
    return words
