#include <algorithm>
#include <memory>
#include <pcre2.h>

#include "runtime/check.h"
#include "text/words/regex.h"
#include "text/words/regex_syntax.h"

namespace flatshard {
namespace {

constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
// The most work of a search. If the time of a pattern is not proportional to the text, the search throws an
// Error.
constexpr uint64_t kLeastWork = 100'000, kWorkPerByte = 200;
constexpr uint32_t kMostHeap = 1 << 20;  // heap for backtracking, in KiB

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

struct Compiled {
  std::string pattern;
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code;
};

pcre2_code* compile(const std::string& pattern, int* error, size_t* at) {
  return pcre2_compile(units(pattern), pattern.size(), kOptions, error, at, nullptr);
}

bool is_script(const std::string& name) {
  int error = 0;
  size_t at = 0;
  pcre2_code* const code = compile("\\p{sc:" + name + '}', &error, &at);
  pcre2_code_free(code);
  return code != nullptr;
}

// The work that a search has done: callouts, and the bytes between them.
struct Work {
  uint64_t done = 0, most = 0;
  size_t at = 0;
};

int count_work(pcre2_callout_block* block, void* data) {
  Work& work = *static_cast<Work*>(data);
  const size_t at = block->current_position;
  work.done += 1 + (at > work.at ? at - work.at : work.at - at);
  work.at = at;
  if (block->callout_number == 1)
    for (uint32_t i = 1; i < block->capture_top; ++i) {
      const size_t begin = block->offset_vector[2 * i], end = block->offset_vector[2 * i + 1];
      if (begin != PCRE2_UNSET && end > begin) work.done += end - begin;
    }
  return work.done > work.most ? PCRE2_ERROR_CALLOUT : 0;
}

}  // namespace

struct RegexSearch::State {
  explicit State(size_t text_bytes) {
    work.most = kLeastWork + kWorkPerByte * text_bytes;
    pcre2_set_callout(context.get(), count_work, &work);
    pcre2_set_match_limit(context.get(), UINT32_MAX);  // the work is counted instead
    pcre2_set_heap_limit(context.get(), kMostHeap);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> found{
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free};
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context{
      pcre2_match_context_create(nullptr), pcre2_match_context_free};
  Work work;
};

Regex::Regex(const std::string& pattern) {
  const std::string text = pcre2_syntax(pattern, is_script);
  int error = 0;
  size_t at = 0;
  pcre2_code* const code = compile(text, &error, &at);
  if (code == nullptr) {
    pcre2_code_free(compile(pattern, &error, &at));  // sets `at` to the position in the original pattern
    fail(str("the pattern ", pattern, " is invalid near byte ", std::min(at, pattern.size()), ": ",
             message_of(error)));
  }
  compiled_ = std::make_shared<const Compiled>(Compiled{pattern, {code, pcre2_code_free}});
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if this fails, matching is only slower
}

RegexSearch::RegexSearch(const Regex& regex, std::string_view text)
    : regex_(regex), text_(text), state_(std::make_shared<State>(text.size())) {}

bool RegexSearch::next(size_t from, TextRange* match) {
  const Compiled& compiled = *static_cast<const Compiled*>(regex_.compiled_.get());
  const auto search = [&](uint32_t options) {
    return pcre2_match(compiled.code.get(), units(text_), text_.size(), from, options | PCRE2_NO_UTF_CHECK,
                       state_->found.get(), state_->context.get());
  };
  int result = search(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = search(PCRE2_NO_JIT);  // backtracks on the heap instead
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0)
    fail(str("the tokenizer's pattern ", compiled.pattern, " cannot be matched at byte ", from,
             " of a text of ", text_.size(), " bytes: ",
             result == PCRE2_ERROR_CALLOUT
                 ? str("it backtracks for more than ", state_->work.most, " steps; split the text")
                 : message_of(result)));
  const size_t* const ends = pcre2_get_ovector_pointer(state_->found.get());
  *match = {ends[0], ends[1]};
  return true;
}

}  // namespace flatshard
