#pragma once
// Writes the samples of several files into token files. The samples depend on the files and options alone,
// not on the number of threads.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "text/data/rollout.h"
#include "text/data/sample_encoder.h"
#include "text/data/token_file.h"

namespace flatshard {

// The documents that a record becomes in a token file (records.h), and the token values of a rollout.
struct RecordDocuments {
  std::vector<Sample> documents{};  // a pair has chosen and rejected
  RolloutValues values{};           // a rollout has one value for each trained token
  float label = 0;                  // 1 or -1 for a labeled answer
};

// The encoder chooses the kind of the record. `another` is the previous record (for the first, the last one);
// only labels read it. An Error begins with `record.where`.
RecordDocuments encode_documents(const SampleEncoder& encoder, const Record& record, const Record& another);

// The record as samples with readable texts: itself, the two of a pair, or one of a rollout unless it has
// only tokens.
std::vector<Record> sample_records(const Record& record, RecordKind kind);

// The number of trained tokens.
int64_t trained_in(const Sample& sample);

struct DatasetFile {
  std::string path;
  double weight = 1;  // number of copies of its samples: 0.5 writes every other one
};

struct DatasetOptions {
  EncoderOptions encoder{};
  TextSplit split = TextSplit::none;
  std::vector<std::string> columns{};  // table columns to read; empty: all
  bool skip_bad = false;               // count records that cannot be encoded instead of ending with an Error
  int64_t most_tokens = 0;             // a record with a longer document is bad; 0: no limit
  double eval_share = 0;               // share of the samples in the second token file
};

struct DatasetCounts {
  int64_t bytes = 0, samples = 0;  // samples: records that were written, without repetitions
  int64_t empty = 0;               // records without tokens
  int64_t untrained = 0;           // records with a document that has no trained token
  int64_t bad = 0;
  std::string first_bad;  // the Error of the first bad record
  int64_t tokens = 0, trained = 0;
  std::vector<std::string> warnings;  // the first warning of each kind, with its record
};

// Called with the number of bytes read for the records written since the last call.
using DatasetProgress = std::function<void(int64_t bytes)>;
// Called with every written record and its documents, to show them.
using ShowRecord = std::function<void(const Record& record, std::span<const Sample> documents)>;

// A pair counts as one sample. Groups of rollouts stay together: the share for evaluation and the weights of
// files apply to groups.
DatasetCounts write_dataset(const std::vector<DatasetFile>& files, const DatasetOptions& options,
                            const SampleEncoder& encoder, TokenWriter& train, TokenWriter* eval,
                            const DatasetProgress& progress = {}, const ShowRecord& show = {});

// The origin of a token file, as one line of JSON: the encoder's identity, the options, and a fingerprint of
// every file.
std::string make_manifest(const std::vector<DatasetFile>& files, const DatasetOptions& options,
                          const SampleEncoder& encoder);

// The reason why the tokens are out of date: an input has changed, or `tokenizer`, unless "", is not the
// identity of their tokenizer. "" if they are current; missing and unreadable inputs are ignored.
std::string why_stale(const std::string& manifest, const std::string& tokenizer);

// The paths of the inputs whose content a manifest records.
std::vector<std::string> inputs_of_manifest(const std::string& manifest);

// The identity of the tokenizer that made the tokens; "" if the manifest has none.
std::string tokenizer_of_manifest(const std::string& manifest);

// The date that the chat template printed; "" if it printed none.
std::string date_of_manifest(const std::string& manifest);

// The kind of the records; samples if the manifest names none.
RecordKind records_of_manifest(const std::string& manifest);

// Describes the records that were not written: "2 empty, 1 without trained tokens".
std::string dropped(const DatasetCounts& counts);

// The path of the token file that runs keep for a single file (kept_files.h); it depends on the manifest.
std::string token_file_of(const std::string& path, const DatasetOptions& options);
// The path used by earlier versions: beside the text, with a hash that skipped parts of large files.
std::string earlier_token_file_of(const std::string& path, const DatasetOptions& options);
// Writes the token file `tokens` of the file at `path`.
DatasetCounts make_token_file(const std::string& path, const DatasetOptions& options,
                              const std::string& tokens, const DatasetProgress& progress);

}  // namespace flatshard
