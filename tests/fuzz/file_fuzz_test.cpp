// Mutated input files, each refused for a known reason or accepted. `fuzz_files` searches for more.

#include <filesystem>
#include <map>
#include <set>

#include "runtime/log.h"
#include "source_dir.h"
#include "tests/checkpoint_content.h"
#include "tests/fuzz/dice.h"
#include "tests/fuzz/file_targets.h"
#include "tests/test.h"
#include "text/words/regex.h"
#include "text/words/unicode.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

const fs::path kCorpus = fs::path(kSourceDir) / "tests" / "fuzz" / "corpus";

// Part of the reason for refusing a file; "" if it is accepted.
using Reasons = std::map<std::string, std::string>;

std::string reason_for(const std::string& target, const std::string& bytes) {
  return test::file_target(target).run(std::as_bytes(std::span(bytes)));
}

std::set<std::string> files_of(const std::string& target) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kCorpus / target))
    names.insert(entry.path().filename().string());
  return names;
}

void check_corpus(const std::string& target, const Reasons& reasons) {
  std::set<std::string> expected;
  for (const auto& [name, text] : reasons) {
    expected.insert(name);
    const std::string reason = reason_for(target, test::read_file((kCorpus / target / name).string()));
    CAPTURE(name);
    CAPTURE(reason);
    CHECK(reason.empty() == text.empty());
    CHECK(reason.find(text) != std::string::npos);
  }
  CHECK(files_of(target) == expected);
}

// One mutation: bytes changed, removed, duplicated or moved.
void change(std::string& bytes, test::Dice& dice) {
  if (bytes.empty()) return;
  const size_t at = dice.below(bytes.size()),
               length = 1 + dice.below(std::min<size_t>(16, bytes.size() - at));
  switch (dice.below(5)) {
    case 0:
      bytes[at] = static_cast<char>(dice.below(256));
      return;
    case 1:
      bytes.erase(at, length);
      return;
    case 2:
      bytes.insert(dice.below(bytes.size()), bytes.substr(at, length));
      return;
    case 3:
      bytes.resize(at);
      return;
    default:
      bytes[at] = "{}[]\",:0129-.eE\\"[dice.below(16)];
  }
}

}  // namespace

TEST_CASE("a foreign chat template is rendered, or refused for the right reason") {
  check_corpus("chat_template",
               {
                   {"everything", ""},
                   {"nothing", ""},
                   {"own_namespace", ""},
                   {"slices", ""},
                   {"conversation", ""},
                   {"everything_of_tools", "file:7: a value of type list has no member 'split'"},
                   {"prompt", ""},
                   {"hidden", ""},
                   {"order", "file:1: roles must alternate"},
                   {"no_messages", "file: \"messages\" has no messages"},
                   {"bad_record", "file: a record must be an object"},
                   {"binary", "file:1: not UTF-8"},
                   {"endless", "file:1: the template needs more than 100000 steps"},
                   {"doubling", "more than 100000 steps"},
                   {"doubling_list", "more than 100000 steps"},
                   {"shared_list", "a value contains more than 1048576 words"},
                   {"deep_list", "a value is nested more than 100 levels deep"},
                   {"recursion", "nested more than 500 levels deep"},
                   {"recursion_of_default", "nested more than 500 levels deep"},
                   {"brackets", "nested more than 200 levels deep"},
                   {"chain", "has more than 200 levels"},
                   {"nested", "nested more than 200 levels deep"},
                   {"huge_repeat", "a text has more than 16777216 bytes"},
                   {"huge_indent", "spaces, must have at most"},
                   {"escaping_macro", "the macro m is called outside the block that defines it"},
                   {"unknown_statement", "file:1: the statement {% include %} is not supported"},
                   {"overflow", "an integer does not fit in 64 bits"},
                   {"negative_overflow", "an integer does not fit in 64 bits"},
               });
}

TEST_CASE("foreign safetensors files are accepted, or refused for the right reason") {
  check_corpus("safetensors",
               {
                   {"empty_set", ""},
                   {"four_numbers", ""},
                   {"scalar", ""},
                   {"no_numbers", ""},
                   {"metadata", ""},
                   {"out_of_order", ""},
                   {"packed_bits", ""},
                   {"white_space", ""},
                   {"no_bytes", "header too small"},
                   {"only_length", "invalid header length: 60 bytes, but only 0 follow"},
                   {"length_too_large", "header too large"},
                   {"length_wraps", "header too large: 18446744073709551615"},
                   {"length_past_end", "invalid header length"},
                   {"bad_utf8", "not UTF-8 at byte 0"},
                   {"surrogate", "not UTF-8 at byte 2"},
                   {"byte_order_mark", "byte order mark"},
                   {"zero_byte", "a zero byte at 2"},
                   {"not_json", "parse error"},
                   {"deep", "nested more than 3 levels deep"},
                   {"deep_unclosed", "nested more than 3 levels deep"},
                   {"array", "must be an object"},
                   {"trailing_bytes", "incomplete buffer: the tensors end at byte 16 of 24"},
                   {"cut_off", "incomplete buffer: \"test\" ends at byte 16 of 14"},
                   {"duplicate", "\"test\" appears twice"},
                   {"overlap", "invalid offset: \"u\" lies at [8, 24], must begin at 16"},
                   {"same_place", "invalid offset"},
                   {"hole", "invalid offset: \"u\" lies at [20, 24], must begin at 16"},
                   {"hole_at_start", "invalid offset"},
                   {"backwards", "invalid offset: \"v\" lies at [4, 0]"},
                   {"wrong_size", "wrong size: \"test\" has 4 bytes, I32 [2, 2] needs 16"},
                   {"product_overflow", "the element count of shape"},
                   {"bytes_overflow", "the byte count of shape"},
                   {"extent_overflow", "an extent of 18446744073709551615 overflows"},
                   {"number_overflow", "must be whole numbers"},
                   {"negative", "shape has -1, must be whole numbers"},
                   {"fraction", "shape has 1.0, must be whole numbers"},
                   {"half_a_byte", "not a whole number of bytes"},
                   {"unknown_dtype", "dtype \"Q7\" is not a dtype of the format"},
                   {"member_missing", "must be an object with exactly dtype, shape and data_offsets"},
                   {"member_unknown", "must be an object with exactly dtype, shape and data_offsets"},
                   {"metadata_number", "\"format\" must be a string"},
               });
}

TEST_CASE("4-bit weights from anywhere are refused for the right reason, or all of their parts can be read") {
  check_corpus("quantized",
               {
                   {"plain", ""},
                   {"nested", ""},
                   {"fp4", ""},
                   {"packed_bf16", ""},
                   {"no_weights", ""},
                   {"no_codes", "a.weight is missing; a.weight is quantized"},
                   {"few_codes", "has 22 bytes of codes, but 3 x 15 elements have 23"},
                   {"other_codes", "a.weight is I8, but it is quantized and must be U8, BF16, F16 or F32"},
                   {"few_scales", "a.weight.absmax is F32 [1], but for 3 x 15 elements in blocks of 32 it"},
                   {"scales_of_nested", "a.weight.absmax is U8 [2], but"},
                   {"no_table", "a.weight.quant_map is missing"},
                   {"short_table", "a.weight.quant_map is F32 [15], but"},
                   {"infinite_scale", "a.weight.absmax: element 1 is inf, must be finite"},
                   {"nested_is_missing", "a.weight.nested_absmax is missing"},
                   {"nested_is_unexpected", "quant_state describes no nested scales"},
                   {"other_name", "its quant_type is nf4, so its name must be"},
                   {"two_states", "a.weight has a second quant_state"},
                   {"no_state", "a.weight.quant_state.bitsandbytes__nf4 (or fp4) is missing"},
                   {"not_json", "invalid JSON"},
                   {"unknown_member", "\"scale\" is not a member of this format"},
                   {"huge_shape", "2147483647 x 2147483647 elements have"},
                   {"overflow", "shape is [4294967296,4294967296], must be"},
                   {"odd_block", "blocksize is 33, must be a power of two"},
                   {"half_nested", "nested_offset is present, but a weight has all of"},
               });
}

TEST_CASE(
    "an index from anywhere is refused for the right reason or accepted, and never leads out of its folder") {
  configure_log(LogLevel::quiet);  // of a tensor that an index leaves out
  check_corpus("index", {
                            {"three_tensors", ""},
                            {"float_total", ""},
                            {"no_total", ""},
                            {"more_metadata", ""},
                            {"left_out", ""},
                            {"nothing", "invalid JSON"},
                            {"cut_off", "invalid JSON"},
                            {"bad_utf8", "not UTF-8 at byte 16"},
                            {"deep", "nested more than 32 levels deep"},
                            {"duplicate", "\"a\" appears twice"},
                            {"no_map", "must be an object whose member weight_map is an object"},
                            {"map_array", "must be an object whose member weight_map is an object"},
                            {"file_number", "\"a\" must be mapped to a file name"},
                            {"folder_above", "not in \"../model.safetensors\""},
                            {"absolute", "not in \"/model.safetensors\""},
                            {"folder_below", "not in \"x/model.safetensors\""},
                            {"zero_byte", "must be in a .safetensors file of this folder"},
                            {"other_kind", "not in \"config.json\""},
                            {"no_such_file", "cannot open: No such file or directory"},
                            {"other_file", "\"c\" is not in model-00001-of-00002.safetensors"},
                            {"no_such_tensor", "\"d\" is not in model-00001-of-00002.safetensors"},
                            {"wrong_total", "total_size is 20, but the tensors have 19 bytes"},
                            {"negative_total", "total_size has -19"},
                            {"large_total", "total_size has 1e+300"},
                            {"infinite_total", "invalid JSON"},
                        });
  configure_log(LogLevel::info);
}

TEST_CASE("a foreign config.json is accepted, or refused for the right reason") {
  check_corpus("config",
               {
                   {"llama", ""},
                   {"llama3_scaling", ""},
                   {"new_spelling", ""},
                   {"mistral", ""},
                   {"qwen2", ""},
                   {"qwen3", ""},
                   {"gpt2", ""},
                   {"gemma2", ""},
                   {"gemma3", ""},
                   {"phi3_longrope", ""},
                   {"few_factors", "short_factor is [1.0,\"2\"], must be a list of 8 positive numbers"},
                   {"yarn", ""},
                   {"granite", ""},
                   {"glm4", ""},
                   {"smollm3", ""},
                   {"odd_no_rope_layers", "no_rope_layers is [1,\"0\"], must be 0 or 1 for each of 2 layers"},
                   {"nothing", "invalid JSON"},
                   {"cut_off", "invalid JSON"},
                   {"bad_utf8", "not UTF-8 at byte 15"},
                   {"array", "must be a JSON object"},
                   {"duplicate", "\"model_type\" appears twice"},
                   {"deep", "nested more than 32 levels deep"},
                   {"number_overflow", "invalid JSON"},
                   {"no_such_family", "model_type is \"rnn\", must be one of"},
                   {"many_layers", "model.layers is 2147483647, must be at most 4096"},
                   {"too_large", "hidden_size is 18446744073709551615"},
                   {"negative", "num_attention_heads is -1"},
                   {"no_heads", "num_attention_heads is 0"},
                   {"odd_heads", "model.kv_heads = 3 does not divide model.heads = 4"},
                   {"heads_times_size", "is 1099511627776, must be at most 1048576"},
                   {"float_size", "hidden_size is 64.0, must be a whole number"},
                   {"scaling_number", "rope_scaling is 8, must be an object"},
                   {"scaling_infinite", "factor is 9.99"},
                   {"theta_disagrees", "must be equal to that of rope_parameters"},
                   {"mixed_layers", "layer_types is"},
                   {"layer_types_objects", "layer_types is"},
                   {"four_bits", ""},
                   {"quantised", "quantization_config.quant_method is missing"},
               });
}

TEST_CASE("a foreign train_state.json is accepted, or refused for the right reason") {
  check_corpus("train_state", {
                                  {"plain", ""},
                                  {"evaluated", ""},
                                  {"evaluated_infinite", ""},
                                  {"evaluated_text", "eval_loss is \"low\", must be a number"},
                                  {"best_infinite", "best.loss is \"inf\", must be a number"},
                                  {"nothing", "invalid JSON"},
                                  {"cut_off", "invalid JSON"},
                                  {"bad_utf8", "not UTF-8 at byte 9"},
                                  {"array", "must be a JSON object"},
                                  {"duplicate", "\"step\" appears twice"},
                                  {"deep", "nested more than 32 levels deep"},
                                  {"member_missing", "tokens is missing"},
                                  {"infinite", "invalid JSON"},
                                  {"member_unknown", "unknown member more"},
                                  {"negative", "step is -1"},
                                  {"too_large", "step is 9223372036854775808"},
                                  {"fraction", "step is 1.5"},
                                  {"no_scale", "loss_scale is 0, must be positive"},
                                  {"step_past_data", "step is 21, more than data_step = 20"},
                                  {"best_number", "best is 3, must be an object"},
                                  {"best_incomplete", "best.loss is missing"},
                                  {"config_number", "config.run.seed is 7, must be a string"},
                                  {"config_text", "config is \"run.seed = 7\", must be an object"},
                                  {"too_many_steps", "data_step is 9007199254740992, must be at most 1e+12"},
                                  {"history", ""},
                                  {"history_missing", "log_history ends with data_step 0, must end with 20"},
                                  {"history_number", "log_history must be an array of at most 1024 lines"},
                                  {"history_of_numbers", "log_history 1: must be a JSON object"},
                                  {"history_long", "log_history must be an array of at most 1024 lines"},
                                  {"history_backwards", "cannot follow data_step 18"},
                                  {"history_too_far", "log_history ends with data_step 21, must end with 20"},
                                  {"history_step", "step 21 of data_step 20 cannot follow"},
                                  {"history_unknown", "log_history 1: unknown key more"},
                                  {"history_deep", "log_history 1: loss must be a single value"},
                              });
}

TEST_CASE("a tokenizer from anywhere is refused for the right reason, or encodes and decodes any text") {
  configure_log(LogLevel::quiet);
  const std::string missing = test::error_of([] {
    char_sets();
    Regex("a");
  });
  if (!missing.empty()) return test::skip(missing);
  check_corpus("tokenizer", {
                                {"plain", ""},
                                {"bytes", ""},
                                {"fallback", ""},
                                {"metaspace", ""},
                                {"steps", ""},
                                {"template", ""},
                                {"ignore_merges", ""},
                                {"invalid_text", ""},
                                {"nothing", "invalid JSON"},
                                {"bad_utf8", "not UTF-8 at byte 10"},
                                {"deep", "nested more than 32 levels deep"},
                                {"duplicate", "\"model\" appears twice"},
                                {"no_model", "model is missing"},
                                {"other_model", "model WordPiece: this model is not supported"},
                                {"absurd_id", "must be a whole number below 4194304"},
                                {"unused_ids", "at most 65536 ids may be unused"},
                                {"negative_id", "the id of \"a\" is -1"},
                                {"same_id", "have the same id 1"},
                                {"merge_of_one", "merges[0]: must be two tokens"},
                                {"merge_unknown", "\"ba\" is not in the vocabulary"},
                                {"bad_pattern", "the pattern (a is invalid near byte 2"},
                                {"endless_pattern", "cannot be matched at byte 0"},
                                {"growing", "the normalizer of the tokenizer turns 3000 bytes into"},
                                {"many_steps", "there are more than 64 steps"},
                                {"unknown_member", "the member \"more\" is not supported"},
                                {"unknown_step", "UnicodeScripts: this pre-tokenizer is not supported"},
                                {"behind_bytes", "follows a ByteLevel"},
                                {"template_id", "must be ids of the vocabulary of 11"},
                                {"added_id", "has the id 3, but the vocabulary has 1"},
                                {"added_empty", "\"content\" is empty, must be text"},
                            });
}

TEST_CASE("the records of a dataset are samples, or are refused with their place and the right reason") {
  check_corpus("dataset",
               {
                   {"texts", ""},
                   {"chats", ""},
                   {"prompts", ""},
                   {"mixed", ""},
                   {"four_chats", ""},
                   {"four_systems", ""},
                   {"four_prompts", ""},
                   {"odd_roles", "fuzz.jsonl:3: chat template chatml:7: the operator + is not supported"},
                   {"nothing", ""},
                   {"no_newline", ""},
                   {"blank", "fuzz.jsonl:2: is not valid JSON (at byte 1 of the line)"},
                   {"not_json", "fuzz.jsonl:2: is not valid JSON (at byte 15 of the line)"},
                   {"not_an_object", "fuzz.jsonl:2: is JSON of type array, must be an object"},
                   {"bad_utf8", "fuzz.jsonl:1: is not valid JSON (at byte 11 of the line)"},
                   {"zero_byte", "fuzz.jsonl:1: is not valid JSON (at byte 13 of the line)"},
                   {"large_number", "fuzz.jsonl:1: contains a number that is too large"},
                   {"duplicate", "fuzz.jsonl:1: has the key \"messages\" twice"},
                   {"deep", "the field \"text\" is of type array, must be a string"},
                   {"deep_chat", "fuzz.jsonl:1: invalid JSON: nested more than 32 levels deep"},
                   {"no_text", "has no field \"text\"; its fields: \"body\""},
                   {"text_number", "the field \"text\" is of type number, must be a string"},
                   {"no_messages", "fuzz.jsonl:1: \"messages\" has no messages"},
                   {"messages_text", "fuzz.jsonl:1: \"messages\" must be a list of messages"},
                   {"message_text", "fuzz.jsonl:1: message 1 is not an object"},
                   {"no_role", "fuzz.jsonl:1: message 1 has no role"},
                   {"role_number", "fuzz.jsonl:1: message 1 has no role"},
                   {"no_content", "fuzz.jsonl:1: "},
                   {"no_completion", "\"prompt\" and \"completion\", or \"instruction\""},
                   {"prompt_number", "fuzz.jsonl:1: \"prompt\" must be a list of messages"},
                   {"turn_without_value", "fuzz.jsonl:1: message 1 has no role"},
                   {"arguments", "\"chat_template_kwargs\" must be an object"},
                   {"integer", "the number 18446744073709551615 does not fit in 64 bits"},
               });
}

TEST_CASE(
    "pairs, labels and rollouts become documents, or are refused with their place and the right reason") {
  check_corpus(
      "answers",
      {
          {"pairs", ""},
          {"labels", ""},
          {"chat_labels", ""},
          {"rollouts", ""},
          {"logprobs", ""},
          {"nothing", ""},
          {"no_difference", "fuzz.jsonl:2: of \"chosen\" and \"rejected\" one begins with the other"},
          {"unlike_labels", "one completion is a text, the other a list of messages"},
          {"label_number", "fuzz.jsonl:1: must have \"prompt\", \"completion\" and \"label\""},
          {"two_advantages", "has more than one of \"advantage\", \"advantages\" and \"reward\""},
          {"no_group", "has a \"reward\", so it must have a \"group\""},
          {"group_list", "\"group\", which is a text or a number"},
          {"group_returns", "fuzz.jsonl:3: is of group 1, which ended before"},
          {"few_advantages", "has 1 advantages for 2 trained tokens"},
          {"some_logprobs", "fuzz.jsonl:2: has no \"logprobs\", unlike the rollouts before"},
          {"large_advantage", "\"advantage\" has 1e+39, which is outside the range"},
          {"large_token", "\"prompt_ids\" has 2147483648, which is not a token"},
          {"unknown_token", "has the token 2147483647, which is outside the vocabulary"},
      });
}

TEST_CASE("a column of token values is read, or refused for the right reason") {
  check_corpus("token_column", {
                                   {"three", ""},
                                   {"nothing", "is not a column of token values"},
                                   {"short", "is not a column of token values"},
                                   {"other_magic", "is not a column of token values"},
                                   {"cut_off", "it is cut off or damaged"},
                                   {"many_values", "9223372036854775808 values: it is cut off or damaged"},
                                   {"long_identity", "an identity of 18446744073709551608 bytes"},
                                   {"other_identity", "for 3 tokens of \"made\", must be for 3"},
                                   {"other_count", "was made for other tokens or weights: for 2 tokens"},
                               });
}

TEST_CASE("a token file is read and packed, or refused for the right reason") {
  check_corpus("token_file", {
                                 {"plain", ""},
                                 {"masked", ""},
                                 {"wide", ""},
                                 {"no_tokens", ""},
                                 {"untrained", ""},
                                 {"stray_bits", ""},
                                 {"nothing", "is not a token file"},
                                 {"cut_off", "is not a token file"},
                                 {"other_version", "is a token file of another version: make it again"},
                                 {"odd_width", "3 bytes per token, must be 2 or 4"},
                                 {"no_vocab", "the vocabulary is 0 tokens, must be from 1"},
                                 {"huge_vocab", "the vocabulary is 4294967295 tokens"},
                                 {"outside", "token 10 at 1 is outside the vocabulary of 10"},
                                 {"many_tokens", "says 9223372036854775808 tokens in 3 documents"},
                                 {"many_documents", "18446744073709551615 documents, but the file has only"},
                                 {"other_mask", "has a mask of 16 bytes, must have 8"},
                                 {"long_manifest", "it is cut off or damaged"},
                                 {"starts_late", "the document starts are not ascending from 0 to 8"},
                                 {"starts_fall", "the document starts are not ascending from 0 to 8"},
                                 {"starts_short", "the document starts are not ascending from 0 to 8"},
                                 {"images", ""},
                                 {"image_of_two_documents", ""},
                                 {"images_overlap", "its image 1 is not where the table says"},
                                 {"image_outside", "its image 0 is not where the table says"},
                                 {"no_images", "the table of its images has 0 bytes"},
                                 {"no_rules", "it has images, but does not say how they are read"},
                                 {"odd_rules", "the rules of images: patch_size is 0"},
                                 {"many_images", "which are not 1152921504606846976 images"},
                                 {"long_name", "its image 0 is not where the table says"},
                                 {"lost_images", ".images: is missing, and holds images of"},
                             });
}

TEST_CASE("a file of an image is decoded, or refused for the right reason") {
  for (const char* kind : {"gray.jpeg", "palette.png", "lossy.webp"}) {
    const std::string reason = reason_for("image", test::read_file((kCorpus / "image" / kind).string()));
    if (reason.find("this build cannot read") != reason.npos) return test::skip(reason);
  }
  check_corpus("image", {
                            {"gray.jpeg", ""},
                            {"progressive.jpeg", ""},
                            {"turned.jpeg", ""},
                            {"palette.png", ""},
                            {"interlaced.png", ""},
                            {"lossy.webp", ""},
                            {"lossless.webp", ""},
                            {"cmyk.jpeg", "CMYK"},
                            {"animated.png", "animation"},
                            {"animated.webp", "animation"},
                            {"nothing", "is empty"},
                            {"text", "is no JPEG, PNG or WebP"},
                            {"cut_off.jpeg", "is truncated"},
                            {"cut_off.png", "is truncated"},
                            {"huge.png", "has 50000 x 50000 pixels"},
                            {"sizeless.jpeg", "is a damaged JPEG of 0 x 0 pixels"},
                            {"twelve_bits.jpeg", "is a JPEG of 12 bits"},
                            {"no_segment.jpeg", "should begin a segment"},
                            {"short_segment.jpeg", "a segment of 1 bytes"},
                            {"checksum.png", "is a damaged PNG"},
                            {"other_size.webp", "is a damaged WebP"},
                        });
}

TEST_CASE("mutated corpus files are refused, or satisfy the contract of their format") {
  constexpr int64_t kChanged = 14;
  configure_log(LogLevel::quiet);  // of tensors that an index leaves out
  for (const test::FileTarget& target : test::file_targets())
    for (const std::string& name : files_of(target.name)) {
      const std::string bytes = test::read_file((kCorpus / target.name / name).string());
      for (int64_t i = 0; i < kChanged; ++i) {
        test::Dice dice(1, str(target.name, '/', name), i);
        std::string changed = bytes;
        for (size_t times = 1 + dice.below(4); times > 0; --times) change(changed, dice);
        CAPTURE(changed);
        CHECK_NOTHROW(reason_for(target.name, changed));
      }
    }
  configure_log(LogLevel::info);
}
