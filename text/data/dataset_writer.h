#pragma once
// Encodes records, in batches on all threads, and writes their documents in the order of the records.
// Documents of a group of rollouts are written together. Used by write_dataset().

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "text/data/dataset.h"

namespace flatshard {

class DatasetWriter {
 public:
  // The arguments must outlive the object.
  DatasetWriter(const DatasetOptions& options, const SampleEncoder& encoder, TokenWriter& train,
                TokenWriter* eval, const ShowRecord& show)
      : options_(options), encoder_(encoder), train_(train), eval_(eval), show_(show) {}

  void begin_file(const DatasetFile& file);
  // Adds a record. Returns whether the batch is large enough to be written.
  bool add(Record record);
  void write_batch(const DatasetProgress& progress);
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

  Encoded encode(const Record& record, const Record& another) const;
  void take(Record record, Encoded encoded);
  // The reason why the record cannot follow the earlier ones; "" if it can.
  std::string why_misplaced(const Record& record, const RolloutValues& values);
  bool is_dropped(const Member& member);
  void compare_rewards();
  void write_group();

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

}  // namespace flatshard
