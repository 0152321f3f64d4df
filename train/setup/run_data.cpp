#include "train/setup/run_data.h"

#include "runtime/check.h"
#include "runtime/text.h"
#include "text/data/dataset.h"
#include "text/tokenizer/tokenizer.h"

namespace flatshard {
namespace {

DataOptions data_options(const RunSetup& s, bool evaluation) {
  const int64_t sequences = evaluation ? s.eval_sequences : s.batching.lane_sequences;
  return {.seq_len = s.seq_len(),
          .lane_sequences = sequences,
          .total_sequences = evaluation ? sequences * s.batching.ranks : s.batching.total_sequences,
          .packing = {.packing = s.config.data.packing,
                      .truncation = s.config.data.truncation,
                      .padding = s.config.data.padding},
          .shuffle = !evaluation && s.config.data.shuffle,
          .seed = static_cast<uint64_t>(s.config.run.seed)};
}

// The identity of the tokenizer of the model; "" if it has none that can be read, so that tokens from
// elsewhere can be used with it.
std::string tokenizer_of(const Config& config) {
  const std::string& folder = tokenizer_folder(config);
  if (folder.empty()) return "";
  try {
    return Tokenizer(folder).identity();
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

const std::string& tokenizer_folder(const Config& config) {
  return config.data.tokenizer.empty() ? config.init_from : config.data.tokenizer;
}

RunData::RunData(const std::string& path, const RunSetup& setup, bool evaluation)
    : file(path, setup.config.data.max_samples),
      data(file, data_options(setup, evaluation)),
      seq_len(setup.seq_len()) {
  const std::string stale =
      file.manifest().empty() ? "" : why_stale(file.manifest(), tokenizer_of(setup.config));
  check(stale.empty(), path, " ", stale, ": make it again with prepare");
  check(file.vocab() <= setup.model.vocab, path, " has a vocabulary of ", file.vocab(),
        ", larger than model.vocab = ", setup.model.vocab);
  const int64_t wanted = setup.config.data.vocab, vocab = setup.config.model.vocab;
  check(wanted == 0 || file.vocab() == wanted, path, " has a vocabulary of ", file.vocab(),
        ", must be data.vocab = ", wanted);
  check(wanted > 0 || 4 * file.vocab() >= 3 * vocab, path, " has a vocabulary of ", file.vocab(),
        ", less than three quarters of model.vocab = ", vocab,
        setup.config.init_from.empty() ? str(": set model.vocab = ", file.vocab())
                                       : ": use the tokenizer of the model",
        ", or, if both are right, data.vocab = ", file.vocab());
}

std::string RunData::describe() const {
  std::string text =
      str(file.path(), ": ", with_commas(file.size()), " tokens in ", with_commas(file.document_count()),
          " documents, ", with_commas(data.sequence_count()), " sequences");
  if (file.left_out() > 0)
    text += str("; data.max_samples leaves out ", counted(file.left_out(), "document"));
  if (const PackedSequences* const packed = data.packed()) {
    const auto places = static_cast<double>(data.sequence_count() * seq_len);
    text += str(" filled to ", fixed(100 * static_cast<double>(packed->used_tokens()) / places, 1), "%");
    const PackedSequences::Losses& losses = packed->losses();
    const auto add = [&](int64_t count, const char* what, const char* loss) {
      if (count > 0) text += str(", ", counted(count, what), loss);
    };
    add(losses.empty, "empty document", " dropped");
    add(losses.untrained, "document", " without trained tokens dropped");
    add(losses.truncated, "document", " truncated");
    add(losses.truncated_tokens, "token", " lost by that");
  }
  return text + str("; an epoch is ", with_commas(data.steps_per_epoch()), " steps");
}

}  // namespace flatshard
