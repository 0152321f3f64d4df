#include "text/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <unistd.h>
#include <utility>

#include <nlohmann/json.hpp>

#include "runtime/check.h"
#include "runtime/fingerprint.h"
#include "runtime/parallel.h"
#include "runtime/sha256.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Records that are encoded together, on all threads.
constexpr size_t kBatchRecords = 4096;
constexpr size_t kBatchBytes = size_t{8} << 20;

struct Encoded {
  Sample sample;
  std::string error;
};

// How often the sample at this index is written: floor(weight * n) times for the first n together.
int64_t copies(int64_t index, double weight) {
  const auto among_first = [weight](int64_t n) {
    return static_cast<int64_t>(std::floor(weight * static_cast<double>(n)));
  };
  return among_first(index + 1) - among_first(index);
}

class DatasetWriter {
 public:
  DatasetWriter(const DatasetOptions& options, const SampleEncoder& encoder, TokenWriter& train,
                TokenWriter* eval, const ShowSample& show)
      : options_(options), encoder_(encoder), train_(train), eval_(eval), show_(show) {}

  void begin_file(const DatasetFile& file) {
    weight_ = file.weight;
    samples_of_file_ = 0;
  }
  // Whether the batch is large enough to be written.
  bool add(Record record) {
    batch_bytes_ += record.text.size();
    file_bytes_ += record.file_bytes;
    batch_.push_back(std::move(record));
    return batch_.size() >= kBatchRecords || batch_bytes_ >= kBatchBytes;
  }
  void write_batch(const DatasetProgress& progress) {
    std::vector<Encoded> encoded(batch_.size());
    parallel_for(std::ssize(batch_), [&](int64_t i) {
      Encoded& e = encoded[static_cast<size_t>(i)];
      try {
        const Record& record = batch_[static_cast<size_t>(i)];
        e.sample = encoder_.encode(record);
        const int64_t tokens = std::ssize(e.sample.tokens);
        check(options_.most_tokens == 0 || tokens <= options_.most_tokens, record.where, ": has ", tokens,
              " tokens, must have at most ", options_.most_tokens);
      } catch (const std::exception& error) {
        e.error = *error.what() ? error.what() : "failed";
      }
    });
    for (size_t i = 0; i < batch_.size(); ++i) write(batch_[i], encoded[i]);
    batch_.clear();
    batch_bytes_ = 0;
    if (progress) progress(std::exchange(file_bytes_, 0));
  }
  DatasetCounts& counts() { return counts_; }

 private:
  void write(const Record& record, const Encoded& encoded) {
    if (!encoded.error.empty()) {
      check(options_.skip_bad, encoded.error);
      if (counts_.bad++ == 0) counts_.first_bad = encoded.error;
      return;
    }
    const Sample& sample = encoded.sample;
    for (const std::string& warning : sample.warnings)
      if (warned_.insert(warning).second) counts_.warnings.push_back(record.where + ": " + warning);
    if (sample.tokens.empty()) {
      ++counts_.empty;
      return;
    }
    // The first token is never a target.
    if (!sample.trained.empty() &&
        std::find(sample.trained.begin() + 1, sample.trained.end(), 1) == sample.trained.end()) {
      ++counts_.untrained;
      return;
    }
    const bool evaluates = eval_ && is_eval_document(counts_.samples, options_.eval_share);
    const int64_t times = evaluates ? 1 : copies(samples_of_file_, weight_);
    for (int64_t i = 0; i < times; ++i)
      (evaluates ? *eval_ : train_).add_document(sample.tokens, sample.trained, sample.images);
    if (show_) show_(record, sample);
    ++counts_.samples;
    if (!evaluates) ++samples_of_file_;
    counts_.tokens = train_.size() + (eval_ ? eval_->size() : 0);
    counts_.trained = train_.trained() + (eval_ ? eval_->trained() : 0);
  }

  const DatasetOptions& options_;
  const SampleEncoder& encoder_;
  TokenWriter& train_;
  TokenWriter* eval_;
  const ShowSample& show_;
  std::vector<Record> batch_;
  size_t batch_bytes_ = 0;
  int64_t file_bytes_ = 0;  // read for the batch
  double weight_ = 1;
  int64_t samples_of_file_ = 0;
  std::set<std::string> warned_;
  DatasetCounts counts_;
};

Json parse(const std::string& manifest) {
  const Json parsed = Json::parse(manifest, nullptr, false);
  return parsed.is_object() ? parsed : Json::object();
}

// "" unless the object has this member and it is text: manifests are untrusted.
std::string text_of(const Json& object, const char* name) {
  if (!object.is_object()) return "";
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

DatasetCounts write_dataset(const std::vector<DatasetFile>& files, const DatasetOptions& options,
                            const SampleEncoder& encoder, TokenWriter& train, TokenWriter* eval,
                            const DatasetProgress& progress, const ShowSample& show) {
  DatasetWriter writer(options, encoder, train, eval, show);
  for (const DatasetFile& file : files) {
    writer.begin_file(file);
    writer.counts().bytes += read_records(
        file.path, options.split,
        [&](Record record) {
          if (writer.add(std::move(record))) writer.write_batch(progress);
        },
        options.columns);
    writer.write_batch(progress);
  }
  return writer.counts();
}

std::string make_manifest(const std::vector<DatasetFile>& files, const DatasetOptions& options,
                          const SampleEncoder& encoder) {
  Json manifest = Json::parse("{" + encoder.identity() + "}");
  manifest["split"] = options.split == TextSplit::none ? "none" : "blank-lines";
  manifest["eval_share"] = options.eval_share;
  if (!options.columns.empty()) manifest["columns"] = options.columns;
  if (options.most_tokens > 0) manifest["max_tokens"] = options.most_tokens;
  manifest["inputs"] = Json::array();
  for (const DatasetFile& file : files) {
    Json input{{"path", fs::absolute(file.path).lexically_normal().string()}, {"weight", file.weight}};
    if (fs::is_regular_file(file.path)) input["content"] = fingerprint({file.path});  // a pipe is read once
    manifest["inputs"].push_back(input);
  }
  return manifest.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string why_stale(const std::string& manifest, const std::string& tokenizer) {
  const Json made = parse(manifest);
  const std::string used = tokenizer_of_manifest(manifest);
  if (!tokenizer.empty() && !used.empty() && used != tokenizer)
    return str("was made with the tokenizer ", used, ", but the model's is ", tokenizer);
  const auto inputs = made.find("inputs");
  if (inputs == made.end() || !inputs->is_array()) return "";
  for (const Json& input : *inputs) {
    const std::string path = text_of(input, "path"), content = text_of(input, "content");
    std::error_code none;
    if (content.empty() || access(path.c_str(), R_OK) != 0 || !fs::is_regular_file(path, none)) continue;
    if (const std::string now = fingerprint({path}); now != content)
      return str("was made from ", path, " when that had ", content, "; now it has ", now);
  }
  return "";
}

std::string tokenizer_of_manifest(const std::string& manifest) {
  return text_of(parse(manifest), "tokenizer");
}

std::string dropped(const DatasetCounts& counts) {
  std::string text = str(counts.empty, " empty");
  if (counts.untrained > 0) text += str(", ", counts.untrained, " without trained tokens");
  if (counts.bad > 0) text += str(", ", counts.bad, " bad");
  return text;
}

std::string token_file_of(const std::string& path, const DatasetOptions& options) {
  const std::string manifest = make_manifest({{path}}, options, SampleEncoder(options.encoder));
  Sha256 sha;
  sha.add(manifest.data(), manifest.size());
  return str(path, '.', sha.hex().substr(0, 16), ".tok");
}

DatasetCounts make_token_file(const std::string& path, const DatasetOptions& options,
                              const std::string& tokens, const DatasetProgress& progress) {
  const SampleEncoder encoder(options.encoder);
  TokenWriter writer(tokens, encoder.vocab());
  writer.set_manifest(make_manifest({{path}}, options, encoder));
  const DatasetCounts counts = write_dataset({{path}}, options, encoder, writer, nullptr, progress);
  check(counts.samples > 0, path, ": has no sample to train on; dropped ", dropped(counts));
  writer.finish();
  return counts;
}

}  // namespace flatshard
