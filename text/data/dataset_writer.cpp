#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "runtime/check.h"
#include "runtime/parallel.h"
#include "text/data/dataset.h"

namespace flatshard {
namespace {

// Limits of a batch, whose records are encoded together.
constexpr size_t kBatchRecords = 4096;
constexpr size_t kBatchBytes = size_t{8} << 20;

// The first token is never a target.
bool has_target(const Sample& sample) {
  if (sample.tokens.empty()) return false;
  return sample.trained.empty() ||
         std::find(sample.trained.begin() + 1, sample.trained.end(), 1) != sample.trained.end();
}

// Encodes records, in batches on all threads, and writes their documents in the order of the records.
// Documents of a group of rollouts are written together.
class DatasetWriter {
 public:
  // The arguments must outlive the object.
  DatasetWriter(const DatasetOptions& options, const SampleEncoder& encoder, TokenWriter& train,
                TokenWriter* eval, const ShowRecord& show)
      : options_(options), encoder_(encoder), train_(train), eval_(eval), show_(show) {}

  void begin_file(const DatasetFile& file) {
    weight_ = file.weight;
    trained_groups_of_file_ = 0;
    groups_of_file_.clear();
  }

  // Adds a record. Returns whether the batch is large enough to be written.
  bool add(Record record) {
    batch_bytes_ += record.text.size();
    file_bytes_ += record.file_bytes;
    batch_.push_back(std::move(record));
    return batch_.size() >= kBatchRecords || batch_bytes_ >= kBatchBytes;
  }

  void write_batch(const DatasetProgress& progress) {
    std::vector<Encoded> encoded(batch_.size());
    parallel_for(std::ssize(batch_), [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      encoded[at] = encode(batch_[at], batch_[(at + batch_.size() - 1) % batch_.size()]);
    });
    for (size_t i = 0; i < batch_.size(); ++i) take(std::move(batch_[i]), std::move(encoded[i]));
    batch_.clear();
    batch_bytes_ = 0;
    if (progress) progress(std::exchange(file_bytes_, 0));
  }

  void end_file() { write_group(); }
  DatasetCounts& counts() { return counts_; }

 private:
  struct Encoded {
    RecordDocuments made;
    std::string error;
  };
  struct Member {
    Record record;
    RecordDocuments made;
  };

  Encoded encode(const Record& record, const Record& another) const {
    Encoded encoded;
    try {
      encoded.made = encode_documents(encoder_, record, another);
      for (const Sample& sample : encoded.made.documents) {
        const int64_t tokens = std::ssize(sample.tokens);
        check(options_.most_tokens == 0 || tokens <= options_.most_tokens, record.where, ": has ", tokens,
              " tokens, must have at most ", options_.most_tokens);
      }
    } catch (const std::exception& error) {
      encoded.error = *error.what() ? error.what() : "failed";
    }
    return encoded;
  }

  void take(Record record, Encoded encoded) {
    if (encoded.error.empty()) encoded.error = why_misplaced(record, encoded.made.values);
    if (!encoded.error.empty()) {
      check(options_.skip_bad, encoded.error);
      if (counts_.bad++ == 0) counts_.first_bad = encoded.error;
      return;
    }
    for (const Sample& sample : encoded.made.documents)
      for (const std::string& warning : sample.warnings)
        if (warned_.insert(warning).second) counts_.warnings.push_back(record.where + ": " + warning);
    const std::string group = encoded.made.values.group;
    if (group.empty() || group != name_of_group_) write_group();
    name_of_group_ = group;
    group_.push_back({std::move(record), std::move(encoded.made)});
    if (group.empty()) write_group();
  }

  // The reason why the record cannot follow the earlier ones; "" if it can.
  std::string why_misplaced(const Record& record, const RolloutValues& values) {
    if (encoder_.records() != RecordKind::rollouts) return "";
    if (has_logprobs_.value_or(!values.logprobs.empty()) == values.logprobs.empty())
      return str(record.where, values.logprobs.empty() ? ": has no \"logprobs\"" : ": has \"logprobs\"",
                 ", unlike the rollouts before: all must have them, or none");
    if (!values.group.empty() && values.group != name_of_group_ &&
        !groups_of_file_.insert(values.group).second)
      return str(record.where, ": is of group ", values.group,
                 ", which ended before: the records of a group must follow one another");
    has_logprobs_ = !values.logprobs.empty();
    return "";
  }

  bool is_dropped(const Member& member) {
    const std::vector<Sample>& documents = member.made.documents;
    if (documents.size() == 1 && documents.front().tokens.empty()) {
      ++counts_.empty;
      return true;
    }
    const bool is_trained = std::all_of(documents.begin(), documents.end(), has_target);
    if (!is_trained) ++counts_.untrained;
    return !is_trained;
  }

  // Computes the advantages of a group of rollouts. The rewards of dropped rollouts count, too.
  void compare_rewards() {
    if (name_of_group_.empty()) return;
    std::vector<double> rewards;
    for (const Member& member : group_) rewards.push_back(*member.made.values.reward);
    const std::vector<float> advantages = advantages_of(rewards);
    for (size_t i = 0; i < group_.size(); ++i) {
      RecordDocuments& made = group_[i].made;
      made.values.advantages.assign(static_cast<size_t>(trained_in(made.documents.front())), advantages[i]);
    }
  }

  void write_group() {
    if (group_.empty()) return;
    compare_rewards();
    name_of_group_.clear();
    std::erase_if(group_, [&](const Member& member) { return is_dropped(member); });
    if (group_.empty()) return;
    const bool evaluates = eval_ && copies_of_document(groups_, options_.eval_share) > 0;
    const int64_t times = evaluates ? 1 : copies_of_document(trained_groups_of_file_, weight_);
    TokenWriter& writer = evaluates ? *eval_ : train_;
    for (int64_t i = 0; i < times; ++i)
      for (const Member& member : group_) {
        const RolloutValues& values = member.made.values;
        for (float label = member.made.label; const Sample& sample : member.made.documents) {
          std::vector<float> advantages = values.advantages;
          if (member.made.label != 0)  // the label belongs to the first document
            advantages.assign(static_cast<size_t>(trained_in(sample)), std::exchange(label, 0.0f));
          writer.add_document(sample.tokens, sample.trained, sample.images,
                              {.logprobs = values.logprobs, .advantages = advantages});
        }
      }
    if (show_)
      for (const Member& member : group_) show_(member.record, member.made.documents);
    counts_.samples += std::ssize(group_);
    group_.clear();
    ++groups_;
    if (!evaluates) ++trained_groups_of_file_;
    counts_.tokens = train_.size() + (eval_ ? eval_->size() : 0);
    counts_.trained = train_.trained() + (eval_ ? eval_->trained() : 0);
  }

  const DatasetOptions& options_;
  const SampleEncoder& encoder_;
  TokenWriter& train_;
  TokenWriter* eval_;
  const ShowRecord& show_;
  std::vector<Record> batch_;
  size_t batch_bytes_ = 0;
  int64_t file_bytes_ = 0;  // file bytes read for the batch
  double weight_ = 1;
  std::vector<Member> group_;             // records that are written together
  std::string name_of_group_;             // "" for a record without a group
  std::set<std::string> groups_of_file_;  // names of the file's groups so far
  int64_t groups_ = 0, trained_groups_of_file_ = 0;
  std::optional<bool> has_logprobs_;  // whether the rollouts have log-probabilities
  std::set<std::string> warned_;
  DatasetCounts counts_;
};

}  // namespace

DatasetCounts write_dataset(const std::vector<DatasetFile>& files, const DatasetOptions& options,
                            const SampleEncoder& encoder, TokenWriter& train, TokenWriter* eval,
                            const DatasetProgress& progress, const ShowRecord& show) {
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
    writer.end_file();
  }
  return writer.counts();
}

}  // namespace flatshard
