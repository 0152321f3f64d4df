#include "bench/tokenizer_bench.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <iomanip>

#include "runtime/parallel.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "text/tokenizer/bpe_trainer.h"
#include "text/tokenizer/tokenizer.h"

namespace flatshard::bench {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr size_t kDocumentBytes = size_t{64} << 10;

std::vector<std::string> documents_of(const std::string& text) {
  std::vector<std::string> documents;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', std::min(at + kDocumentBytes, text.size()));
    end = end == text.npos ? text.size() : end + 1;
    documents.push_back(text.substr(at, end - at));
    at = end;
  }
  return documents;
}

std::string trained(const std::vector<std::string>& documents, int64_t vocab) {
  BpeTrainer trainer({.vocab = vocab, .special = {"<|endoftext|>"}});
  for (const std::string& document : documents) trainer.add(document);
  return trainer.tokenizer_json();
}

}  // namespace

TokenizerResult measure_tokenizer(const TokenizerOptions& options) {
  const std::vector<std::string> documents = documents_of(read_whole_file(options.text, kMostBytes));
  check(!documents.empty(), options.text, ": has no text");
  TokenizerResult result;
  result.documents = std::ssize(documents);
  for (const std::string& document : documents) result.bytes += std::ssize(document);
  const std::string json = trained(documents, options.vocab);
  const Tokenizer tokenizer = options.tokenizer.empty() ? Tokenizer::from_json(json, "the trained tokenizer")
                                                        : Tokenizer(options.tokenizer);
  const int all_threads = thread_count();
  std::vector<std::vector<int32_t>> ids(documents.size());
  const auto add_line = [&](const char* work, int threads, const std::function<void()>& run) {
    set_thread_count(threads);
    result.times.push_back({work, threads, spread(samples_of(options.seconds, run))});
  };
  std::vector<int> counts{1};
  if (all_threads > 1) counts.push_back(all_threads);
  for (const int threads : counts) add_line("train", threads, [&] { trained(documents, options.vocab); });
  for (const int threads : counts)
    add_line("encode", threads, [&] {
      parallel_for(result.documents, [&](int64_t i) {
        ids[static_cast<size_t>(i)] = tokenizer.encode(documents[static_cast<size_t>(i)]).ids;
      });
    });
  for (const int threads : counts)
    add_line("decode", threads, [&] {
      parallel_for(result.documents, [&](int64_t i) { tokenizer.decode(ids[static_cast<size_t>(i)]); });
    });
  set_thread_count(all_threads);
  for (const std::vector<int32_t>& some : ids) result.tokens += std::ssize(some);
  return result;
}

std::string tokenizer_table(const TokenizerResult& r) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << static_cast<double>(r.bytes) * 1e-6 << " MB in "
      << counted(r.documents, "document") << ", " << counted(r.tokens, "token") << '\n'
      << "work    threads    seconds  p10..p90             MB/s\n";
  for (const TokenizerTime& time : r.times)
    out << std::left << std::setw(8) << time.work << std::right << std::setw(7) << time.threads
        << std::setprecision(4) << std::setw(11) << time.seconds.median << std::setw(9) << time.seconds.p10
        << ".." << std::left << std::setw(11) << time.seconds.p90 << std::right << std::setprecision(1)
        << std::setw(6) << static_cast<double>(r.bytes) * 1e-6 / time.seconds.median << '\n';
  return std::move(out).str();
}

}  // namespace flatshard::bench
