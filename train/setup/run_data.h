#pragma once
// Token files and the order in which a run reads them, to train or to evaluate.

#include <deque>
#include <memory>

#include "text/data/data.h"
#include "text/data/records.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// The folder of a run's tokenizer: data.tokenizer, or else the model folder; "" if the run has neither.
std::string tokenizer_folder(const Config& config);

// The records that a loss learns from.
RecordKind records_of(const AnswerLoss& loss);

struct RunData {
  // An Error if the vocabulary of a file is larger than the model's, or so much smaller that the file must be
  // from another tokenizer, or if files are from different tokenizers.
  RunData(const DataFiles& paths, const RunSetup& setup, bool evaluation);

  // Opens the columns that the loss reads. `references` are the files with the reference's column, one for
  // each token file.
  struct ReferenceFile {
    std::string path, identity;
  };
  void open_columns(const AnswerLoss& loss, const std::vector<ReferenceFile>& references);
  // "corpus.tok: 1,820 tokens in 60 documents, 113 sequences; an epoch is 15 steps", and the losses by
  // packing. With several files, a line for each, with its name and share, and a last line.
  std::string describe() const;
  // Whether some positions of sequences are no targets by design: tokens that are not trained, or padding.
  bool has_untrained_places() const;
  int64_t token_count() const;
  int64_t document_count() const;

  std::vector<std::string> names;  // names of the files
  std::deque<TokenFile> files;     // a deque, so that their addresses are fixed
  std::vector<std::unique_ptr<const TokenColumn>> columns{};
  Data data;
  int64_t seq_len;
  PackingOptions packing;

 private:
  std::string describe_file(size_t i) const;
};

}  // namespace flatshard
