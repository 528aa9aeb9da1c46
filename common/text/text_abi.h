/* C interface of the Rust crate in common/text/rust. Only the C++ classes of this folder use it.
 *
 * Every function that can fail returns an int32_t with the value of an absl::StatusCode (0 is OK).
 * If it is not 0, the function also writes a NUL-terminated UTF-8 message into `error`, truncated
 * to `error_bytes`. Every entry point catches panics of the crate and reports them as Internal
 * (13). OutOfRange (11) means that an output buffer is too small; the size output then holds the
 * needed size. Text must be UTF-8; other bytes are InvalidArgument (3). A loaded object is
 * immutable, and any number of threads may use it at the same time. */
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
  SC_TEXT_DECODE_BYTES = 0, /* bytes of all tokens, concatenated and read as UTF-8 */
  SC_TEXT_DECODE_TEXT = 1,  /* text of the tokens; runs of SC_TEXT_PIECE_BYTE tokens are UTF-8 */
  SC_TEXT_DECODE_WHOLE = 2, /* needs the whole sequence: use sc_text_decode */
};

/* Flags of one token. */
enum {
  SC_TEXT_PIECE_KNOWN = 1,
  SC_TEXT_PIECE_SPECIAL = 2,     /* left out when special tokens are skipped */
  SC_TEXT_PIECE_BYTE = 4,        /* one byte of a character that the vocabulary lacks */
  SC_TEXT_PIECE_OTHER_MEDIA = 8, /* not text: has a role such as image_token */
};

/* The text that each token contributes. Pointers are valid as long as the tokenizer. */
typedef struct ScTextPieces {
  int32_t decode;          /* SC_TEXT_DECODE_* */
  int32_t n_ids;           /* largest id + 1 */
  const uint8_t* flags;    /* [n_ids] */
  const uint32_t* offsets; /* [n_ids + 1] into bytes */
  const uint8_t* bytes;
  /* The same for a token that is first in its sequence. Null if that makes no difference. */
  const uint32_t* first_offsets;
  const uint8_t* first_bytes;
  /* Up to n_strip characters strip_byte (ASCII) are removed from the start of the text. */
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
  ScTextString pre;   /* "" if absent */
  const ScTextString* tokens;
  size_t n_tokens;
  const float* scores; /* n_scores and n_kinds are n_tokens or 0 */
  size_t n_scores;
  const int32_t* kinds; /* token_type */
  size_t n_kinds;
  const ScTextString* merges;
  size_t n_merges;
  int64_t bos_id; /* ids; negative: none */
  int64_t eos_id;
  int64_t unk_id;
  int64_t pad_id;
  int32_t add_bos; /* flags; negative: the model's default */
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

/* Roles: "bos_token", "eos_token", "unk_token", "pad_token". *size is 0 if no token has the role.
 * The text is valid as long as the tokenizer. */
void sc_text_tokenizer_role(const ScTextTokenizer* tokenizer, const char* role, const char** text,
                            size_t* size);

/* The id of a token by its spelling in the tokenizer's files, or -1. */
int32_t sc_text_tokenizer_id(const ScTextTokenizer* tokenizer, const char* piece, size_t size);

/* ids has room for `capacity` ids; *n_ids becomes their number. Inside `plain`, ascending ranges
 * of `text`, spellings of special tokens are ordinary text. */
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
  const char* kwargs; /* a JSON object, or empty */
  size_t n_kwargs;
  int64_t now_unix_s; /* for strftime_now; negative: the system clock */
} ScTextRenderOptions;

/* Pointers are valid as long as the ScTextRendered. */
typedef struct ScTextRenderedView {
  const char* text;
  size_t size;
  const ScTextRange* plain;
  size_t n_plain;
  const char* control; /* null if `plain` is complete */
  size_t n_control;
} ScTextRenderedView;

/* override_path: a template file, or "" for the checkpoint's template. */
int32_t sc_text_template_load(const char* model_dir, const char* override_path,
                              ScTextTemplate** out, char* error, size_t error_bytes);
/* tool_use: the template for requests with tools, or "" for none. roles: [n_roles, 2], pairs of a
 * name, such as "bos_token", and a token. */
int32_t sc_text_template_from_source(const char* source, size_t size, ScTextString tool_use,
                                     const ScTextString* roles, size_t n_roles,
                                     ScTextTemplate** out, char* error, size_t error_bytes);
void sc_text_template_free(ScTextTemplate* chat_template);

/* Returns 1 if the template's source contains this text, otherwise 0. */
int32_t sc_text_template_mentions(const ScTextTemplate* chat_template, const char* text,
                                  size_t size);

/* messages, tools: JSON arrays; tools may be empty. */
int32_t sc_text_template_render(const ScTextTemplate* chat_template, const char* messages,
                                size_t n_messages, const char* tools, size_t n_tools,
                                const ScTextRenderOptions* options, ScTextRendered** out,
                                ScTextRenderedView* view, char* error, size_t error_bytes);
void sc_text_rendered_free(ScTextRendered* rendered);

/* Grammars: constrain generated text by masks over the vocabulary. */
typedef struct ScGrammarVocabulary ScGrammarVocabulary;
typedef struct ScGrammar ScGrammar;
typedef struct ScGrammarMatcher ScGrammarMatcher;

/* How a grammar treats a token. */
enum {
  SC_GRAMMAR_TOKEN_NONE = 0,    /* never allowed */
  SC_GRAMMAR_TOKEN_TEXT = 1,    /* its bytes */
  SC_GRAMMAR_TOKEN_SPECIAL = 2, /* allowed where a grammar names it; its bytes are its name */
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
  /* {"calls": Lark, "form": {"kind": one of the above, "text": source}}: accepts either */
  SC_GRAMMAR_CALLS_OR_FORM = 5,
};

/* Takes up to a second for a vocabulary of 262k tokens. */
int32_t sc_grammar_vocabulary_new(const ScGrammarTokens* tokens, ScGrammarVocabulary** out,
                                  char* error, size_t error_bytes);
void sc_grammar_vocabulary_free(ScGrammarVocabulary* vocabulary);

/* begins_after: a text, or the name of a special token, after which the grammar begins. Empty: the
 * grammar applies to the whole text. InvalidArgument says why a grammar is refused. Compiles on a
 * separate thread with a large stack while the caller waits. The grammar keeps alive the parts of
 * the vocabulary that it needs. */
int32_t sc_grammar_compile(const ScGrammarVocabulary* vocabulary, int32_t kind, const char* source,
                           size_t size, int32_t any_whitespace, const char* begins_after,
                           size_t n_begins_after, ScGrammar** out, char* error, size_t error_bytes);
void sc_grammar_free(ScGrammar* grammar);

/* Memory that the grammar holds now. It grows while sequences use the grammar. */
size_t sc_grammar_bytes(const ScGrammar* grammar);

/* Makes a matcher at the grammar's beginning. Only one thread may use it at a time. It keeps alive
 * the parts of the grammar that it needs. After an error of consume or mask, only call free. */
int32_t sc_grammar_matcher_new(const ScGrammar* grammar, ScGrammarMatcher** out, char* error,
                               size_t error_bytes);
void sc_grammar_matcher_free(ScGrammarMatcher* matcher);

/* The ids must not contain EOS. FailedPrecondition: an id does not continue the grammar.
 * ResourceExhausted: the grammar is too complex at this position. */
int32_t sc_grammar_matcher_consume(ScGrammarMatcher* matcher, const uint32_t* ids, size_t n_ids,
                                   char* error, size_t error_bytes);
/* Sets bit i % 32 of words[i / 32] if token i may follow. If the text may end, sets the EOS ids and
 * *may_end. n_words: (n_logits + 31) / 32. Errors: as for consume. */
int32_t sc_grammar_matcher_mask(ScGrammarMatcher* matcher, uint32_t* words, size_t n_words,
                                int32_t* may_end, char* error, size_t error_bytes);

#ifdef __cplusplus
}
#endif

#endif /* STAGECOACH_COMMON_TEXT_TEXT_ABI_H_ */
