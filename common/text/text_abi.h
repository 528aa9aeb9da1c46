/* C interface of the Rust crate in common/text/rust. Only the C++ classes of this folder use it.
 *
 * Every function that can fail returns an int32_t with the value of an absl::StatusCode (0 is OK)
 * and, when it is not 0, writes a NUL-terminated UTF-8 message into `error`, cut to `error_bytes`.
 * A panic inside the crate is caught at every entry and reported as Internal (13).
 * OutOfRange (11) means that an output buffer is too small: the needed size is in the size output.
 * Text is UTF-8; a text that is not is InvalidArgument (3).
 * A loaded object is immutable and may be used by any number of threads at once. */
#ifndef STAGECOACH_COMMON_TEXT_TEXT_ABI_H_
#define STAGECOACH_COMMON_TEXT_TEXT_ABI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ScTextTokenizer ScTextTokenizer;

/* How a sequence of tokens becomes text. */
enum {
  SC_TEXT_DECODE_BYTES = 0, /* bytes of the tokens one after the other, read as UTF-8 */
  SC_TEXT_DECODE_TEXT = 1,  /* text of the tokens; runs of SC_TEXT_PIECE_BYTE tokens are UTF-8 */
  SC_TEXT_DECODE_WHOLE = 2, /* known for the whole sequence only: sc_text_decode */
};

/* Flags of one token. */
enum {
  SC_TEXT_PIECE_KNOWN = 1,
  SC_TEXT_PIECE_SPECIAL = 2,     /* left out when special tokens are skipped */
  SC_TEXT_PIECE_BYTE = 4,        /* one byte of a character that the vocabulary lacks */
  SC_TEXT_PIECE_OTHER_MEDIA = 8, /* of a role such as image_token: not of text */
};

/* What each token contributes. Pointers live as long as the tokenizer. */
typedef struct ScTextPieces {
  int32_t decode;          /* SC_TEXT_DECODE_* */
  int32_t n_ids;           /* largest id + 1 */
  const uint8_t* flags;    /* [n_ids] */
  const uint32_t* offsets; /* [n_ids + 1] into bytes */
  const uint8_t* bytes;
  /* The same for a token that is first in its sequence, or null where that makes no difference. */
  const uint32_t* first_offsets;
  const uint8_t* first_bytes;
  /* Up to this many bytes of this (ASCII) character are removed from the start of the text. */
  int32_t n_strip;
  uint8_t strip_byte;
} ScTextPieces;

typedef struct ScTextRange {
  size_t begin; /* bytes */
  size_t end;   /* one past the last byte */
} ScTextRange;

typedef struct ScTextString {
  const char* data;
  size_t size;
} ScTextString;

/* The tokenizer.ggml.* metadata of a .gguf file. */
typedef struct ScTextGguf {
  ScTextString model; /* "llama" or "gpt2" */
  ScTextString pre;   /* "" when there is none */
  const ScTextString* tokens;
  size_t n_tokens;
  const float* scores; /* n_scores and n_kinds: n_tokens, or 0 */
  size_t n_scores;
  const int32_t* kinds; /* token_type */
  size_t n_kinds;
  const ScTextString* merges;
  size_t n_merges;
  int64_t bos_id; /* of these negative: none */
  int64_t eos_id;
  int64_t unk_id;
  int64_t pad_id;
  int32_t add_bos; /* of these negative: the default of the model */
  int32_t add_eos;
  int32_t add_space_prefix;
} ScTextGguf;

/* Reads the tokenizer files of a checkpoint folder. */
int32_t sc_text_tokenizer_load(const char* model_dir, ScTextTokenizer** out, char* error,
                               size_t error_bytes);
int32_t sc_text_tokenizer_from_gguf(const ScTextGguf* gguf, ScTextTokenizer** out, char* error,
                                    size_t error_bytes);
void sc_text_tokenizer_free(ScTextTokenizer* tokenizer);

void sc_text_tokenizer_pieces(const ScTextTokenizer* tokenizer, ScTextPieces* out);

/* Roles: "bos_token", "eos_token", "unk_token", "pad_token". *size is 0 when there is none; the
 * text lives as long as the tokenizer. */
void sc_text_tokenizer_role(const ScTextTokenizer* tokenizer, const char* role, const char** text,
                            size_t* size);

/* The id of a token as the tokenizer's files spell it, or -1. */
int32_t sc_text_tokenizer_id(const ScTextTokenizer* tokenizer, const char* piece, size_t size);

/* ids: room for `capacity`; *n_ids: how many there are. `plain` are ascending ranges of `text`
 * in which spellings of special tokens are ordinary text. */
int32_t sc_text_encode(const ScTextTokenizer* tokenizer, const char* text, size_t size,
                       const ScTextRange* plain, size_t n_plain, int32_t add_special_tokens,
                       int32_t* ids, size_t capacity, size_t* n_ids, char* error,
                       size_t error_bytes);

int32_t sc_text_decode(const ScTextTokenizer* tokenizer, const int32_t* ids, size_t n_ids,
                       int32_t skip_special_tokens, char* text, size_t capacity, size_t* size,
                       char* error, size_t error_bytes);

typedef struct ScTextTemplate ScTextTemplate;
typedef struct ScTextRendered ScTextRendered;

typedef struct ScTextRenderOptions {
  int32_t add_generation_prompt;
  int32_t continue_final_message;
  const char* kwargs; /* a JSON object, or nothing */
  size_t n_kwargs;
  int64_t now_unix_s; /* for strftime_now; negative: the clock */
} ScTextRenderOptions;

/* Pointers live as long as the ScTextRendered. */
typedef struct ScTextRenderedView {
  const char* text;
  size_t size;
  const ScTextRange* plain;
  size_t n_plain;
  const char* control; /* or null, where `plain` is all that a person wrote */
  size_t n_control;
} ScTextRenderedView;

/* override_path: a template file, or "" for the checkpoint's own. */
int32_t sc_text_template_load(const char* model_dir, const char* override_path,
                              ScTextTemplate** out, char* error, size_t error_bytes);
/* tool_use: what requests with tools use instead, or "". roles: [n_roles, 2] names, such as
 * "bos_token", and tokens. */
int32_t sc_text_template_from_source(const char* source, size_t size, ScTextString tool_use,
                                     const ScTextString* roles, size_t n_roles,
                                     ScTextTemplate** out, char* error, size_t error_bytes);
void sc_text_template_free(ScTextTemplate* chat_template);

/* Whether the template's source has this text anywhere: 0 or 1. */
int32_t sc_text_template_mentions(const ScTextTemplate* chat_template, const char* text,
                                  size_t size);

/* messages, tools: JSON arrays; tools may be empty. */
int32_t sc_text_template_render(const ScTextTemplate* chat_template, const char* messages,
                                size_t n_messages, const char* tools, size_t n_tools,
                                const ScTextRenderOptions* options, ScTextRendered** out,
                                ScTextRenderedView* view, char* error, size_t error_bytes);
void sc_text_rendered_free(ScTextRendered* rendered);

/* Grammars: what a generated text may be, as masks over the vocabulary. */
typedef struct ScGrammarVocabulary ScGrammarVocabulary;
typedef struct ScGrammar ScGrammar;
typedef struct ScGrammarMatcher ScGrammarMatcher;

/* What a token is to a grammar. */
enum {
  SC_GRAMMAR_TOKEN_NONE = 0,    /* never allowed */
  SC_GRAMMAR_TOKEN_TEXT = 1,    /* its bytes */
  SC_GRAMMAR_TOKEN_SPECIAL = 2, /* allowed where a grammar names it, and its bytes are its name */
};

typedef struct ScGrammarTokens {
  const uint8_t* kinds;    /* [n_ids] */
  const uint32_t* offsets; /* [n_ids + 1] into bytes */
  size_t n_ids;
  const uint8_t* bytes;
  size_t n_bytes;
  const uint32_t* eos_ids;
  size_t n_eos;
  size_t n_logits; /* at least n_ids; ids from n_ids on are padding */
} ScGrammarTokens;

enum {
  SC_GRAMMAR_JSON_SCHEMA = 0,
  SC_GRAMMAR_JSON_OBJECT = 1, /* the source is not read */
  SC_GRAMMAR_REGEX = 2,
  SC_GRAMMAR_CHOICE = 3, /* a JSON array of strings */
  SC_GRAMMAR_LARK = 4,
  /* {"calls": Lark, "form": {"kind": one of those above, "text": source}}: one or the other */
  SC_GRAMMAR_CALLS_OR_FORM = 5,
};

/* Takes up to a second for a vocabulary of 262k tokens. */
int32_t sc_grammar_vocabulary_new(const ScGrammarTokens* tokens, ScGrammarVocabulary** out,
                                  char* error, size_t error_bytes);
void sc_grammar_vocabulary_free(ScGrammarVocabulary* vocabulary);

/* begins_after: a text, or the name of a special token, behind which the grammar begins; empty: it
 * is of all. InvalidArgument says why a grammar is refused. Runs on a thread of its own, with a
 * large stack, while the caller waits. The grammar keeps what it needs of the vocabulary. */
int32_t sc_grammar_compile(const ScGrammarVocabulary* vocabulary, int32_t kind, const char* source,
                           size_t size, int32_t any_whitespace, const char* begins_after,
                           size_t n_begins_after, ScGrammar** out, char* error, size_t error_bytes);
void sc_grammar_free(ScGrammar* grammar);

/* Memory that the grammar holds now: what its sequences met adds to it. */
size_t sc_grammar_bytes(const ScGrammar* grammar);

/* A place in the grammar, at its beginning. Used by one thread at a time; keeps what it needs of
 * the grammar. After an error of consume or mask nothing but free is left to do with it. */
int32_t sc_grammar_matcher_new(const ScGrammar* grammar, ScGrammarMatcher** out, char* error,
                               size_t error_bytes);
void sc_grammar_matcher_free(ScGrammarMatcher* matcher);

/* No EOS among the ids. FailedPrecondition: one of them does not continue the grammar;
 * ResourceExhausted: the grammar is too complex at this place. */
int32_t sc_grammar_matcher_consume(ScGrammarMatcher* matcher, const uint32_t* ids, size_t n_ids,
                                   char* error, size_t error_bytes);
/* Bit i % 32 of words[i / 32]: token i may follow; EOS ids where the text may end, which *may_end
 * tells too. n_words: (n_logits + 31) / 32. Errors as of consume. */
int32_t sc_grammar_matcher_mask(ScGrammarMatcher* matcher, uint32_t* words, size_t n_words,
                                int32_t* may_end, char* error, size_t error_bytes);

#ifdef __cplusplus
}
#endif

#endif /* STAGECOACH_COMMON_TEXT_TEXT_ABI_H_ */
