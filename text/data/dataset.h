#pragma once
// Writes the samples of several files into token files. The samples depend on the files and options alone,
// not on the number of threads.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "text/data/record_documents.h"
#include "text/data/sample_encoder.h"
#include "text/data/token_file.h"

namespace flatshard {

struct DatasetFile {
  std::string path;
  double weight = 1;  // how often its samples are written: 0.5 writes every other one
};

struct DatasetOptions {
  EncoderOptions encoder{};
  TextSplit split = TextSplit::none;
  std::vector<std::string> columns{};  // of tables; empty: all
  bool skip_bad = false;               // count records that cannot be encoded instead of ending with an Error
  int64_t most_tokens = 0;             // a record with a document of more is bad; 0: no limit
  double eval_share = 0;               // of the samples, for the second token file
};

struct DatasetCounts {
  int64_t bytes = 0, samples = 0;  // samples: records that were written, without repetitions
  int64_t empty = 0;               // records without a token
  int64_t untrained = 0;           // records with a document of which no token would be trained
  int64_t bad = 0;
  std::string first_bad;  // the Error of the first of them
  int64_t tokens = 0, trained = 0;
  std::vector<std::string> warnings;  // the first of each kind, with its place
};

// Called with the bytes that were read from files for the records written since the last call.
using DatasetProgress = std::function<void(int64_t bytes)>;
// Called with every record that is written and its documents, to show them.
using ShowRecord = std::function<void(const Record& record, std::span<const Sample> documents)>;

// A pair counts as one sample. Groups of rollouts stay together: the share for evaluation and the weights of
// files are those of groups.
DatasetCounts write_dataset(const std::vector<DatasetFile>& files, const DatasetOptions& options,
                            const SampleEncoder& encoder, TokenWriter& train, TokenWriter* eval,
                            const DatasetProgress& progress = {}, const ShowRecord& show = {});

// What a token file was made from, as one line of JSON: the encoder's identity, the options, and a
// fingerprint of every file.
std::string make_manifest(const std::vector<DatasetFile>& files, const DatasetOptions& options,
                          const SampleEncoder& encoder);

// Why the tokens are out of date: an input has changed, or `tokenizer`, unless "", is not the identity of
// their tokenizer. "" if they are current; missing and unreadable inputs do not count.
std::string why_stale(const std::string& manifest, const std::string& tokenizer);

// The paths of the inputs whose content a manifest records.
std::vector<std::string> inputs_of_manifest(const std::string& manifest);

// The identity of the tokenizer that made the tokens; "" if the manifest has none.
std::string tokenizer_of_manifest(const std::string& manifest);

// The date that their chat template printed; "" if it printed none.
std::string date_of_manifest(const std::string& manifest);

// What the records were; samples if the manifest does not say.
RecordKind records_of_manifest(const std::string& manifest);

// "2 empty, 1 without trained tokens": the records that were not written.
std::string dropped(const DatasetCounts& counts);

// The path of the token file that is kept (kept_files.h) of a single file; it depends on the manifest.
std::string token_file_of(const std::string& path, const DatasetOptions& options);
// Where earlier versions kept it: beside the text, by a hash that did not cover all of a large one.
std::string earlier_token_file_of(const std::string& path, const DatasetOptions& options);
// Writes the file at token_file_of().
DatasetCounts make_token_file(const std::string& path, const DatasetOptions& options,
                              const std::string& tokens, const DatasetProgress& progress);

}  // namespace flatshard
