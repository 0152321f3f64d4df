#include "train/setup/run_data.h"

#include "hub/gguf/gguf_tokenizer.h"
#include "runtime/check.h"
#include "runtime/text.h"
#include "text/data/dataset.h"
#include "text/data/kept_files.h"
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
                      .padding = s.config.data.padding,
                      .max_patches = s.max_patches,
                      .records = records_of(s.config.loss)},
          .shuffle = !evaluation && s.config.data.shuffle,
          .seed = static_cast<uint64_t>(s.config.run.seed)};
}

// The identity of the tokenizer of the model; "" if it has none that can be read, so that tokens from
// elsewhere can be used with it.
std::string tokenizer_of(const Config& config) {
  const std::string folder = tokenizer_folder(config);
  if (folder.empty()) return "";
  try {
    return Tokenizer(folder).identity();
  } catch (const Error&) {
    return "";
  }
}

std::vector<std::string> names_of(const std::vector<NamedFile>& files) {
  std::vector<std::string> names;
  for (const NamedFile& file : files) names.push_back(file.name);
  return names;
}

std::deque<TokenFile> opened(const std::vector<NamedFile>& files, int64_t most_documents) {
  std::deque<TokenFile> all;
  for (const NamedFile& file : files) all.emplace_back(file.path, most_documents);
  return all;
}

std::vector<const TokenFile*> pointers_to(const std::deque<TokenFile>& files) {
  std::vector<const TokenFile*> pointers;
  for (const TokenFile& file : files) pointers.push_back(&file);
  return pointers;
}

void check_file(const TokenFile& file, const std::string& tokenizer, const RunSetup& setup) {
  const std::string& path = file.path();
  const std::string stale = file.manifest().empty() ? "" : why_stale(file.manifest(), tokenizer);
  check(stale.empty(), path, " ", stale, ": ", remedy_of(path));
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

void check_records(const TokenFile& file, const AnswerLoss& loss) {
  const RecordKind made = records_of_manifest(file.manifest()), wanted = records_of(loss);
  check(made == wanted, file.path(), ": was made of ", made, ", but train.loss = \"", loss.kind,
        "\" learns from ", wanted, ": make it again with prepare --records ", wanted);
}

// An Error unless the file's image tokens and patches match the model.
void check_vision(const TokenFile& file, const VisionConfig& vision) {
  const ImageInput& input = file.image_input();
  const auto must_be = [&](const char* what, int64_t in_file, int64_t of_model) {
    check(in_file == of_model, file.path(), ": was made for images of ", what, ' ', in_file,
          ", but the model has ", of_model, ": make it again with prepare, with the tokenizer of the model");
  };
  must_be("image_token_id", input.token, vision.image_token);
  must_be("patch_size", input.rules.patch_size, vision.patch_size);
  if (input.rules.by_squares()) {
    must_be("spatial_merge_size", input.rules.scale, vision.scale);
    must_be("temporal_patch_size", input.rules.repeats, vision.repeats);
    return;
  }
  must_be("image_size / patch_size", input.rules.position_side, vision.image_size / vision.patch_size);
  if (input.rules.family == ImageFamily::idefics2)
    must_be("resampler_n_latents", input.rules.latents, vision.perceiver.latents);
  else
    must_be("scale_factor", input.rules.scale, vision.scale);
}

// An Error unless the model reads the file's images as they were read when the tokens were made.
void check_images(const TokenFile& file, const RunSetup& setup) {
  if (!file.has_images()) return;
  const std::string& path = file.path();
  check(setup.model.vision.has_value(), path, ": has images, and the model, a ", setup.model.family,
        ", reads only text: set model.init_from to a model that reads images");
  const ImageFamily family = file.image_input().rules.family;
  check(image_family_of(setup.model.family) == family, path, ": was made for images of ", family,
        ", but the model is a ", setup.model.family,
        ": make it again with prepare, with the tokenizer of the model");
  check_vision(file, *setup.model.vision);
  const std::string folder = tokenizer_folder(setup.config);
  const std::optional<ImageInput> input =
      folder.empty() ? std::nullopt : read_image_input(folder, setup.config.data.image_longest_edge);
  check(!input || *input == file.image_input(), path, ": was made for images as ",
        to_json(file.image_input()), ", but the model in ", folder, " reads them as ",
        input ? to_json(*input) : "", ": make it again with prepare");
}

// An Error unless the files of a run have the same tokenizer, as far as they name it.
void check_alike(const std::deque<TokenFile>& files) {
  constexpr const char* kRemedy = ": make both with the same tokenizer";
  const TokenFile* known = nullptr;  // the first file that names its tokenizer
  for (const TokenFile& file : files) {
    check(file.vocab() == files.front().vocab(), file.path(), " has a vocabulary of ", file.vocab(), ", ",
          files.front().path(), " one of ", files.front().vocab(), kRemedy);
    const std::string tokenizer = tokenizer_of_manifest(file.manifest());
    if (tokenizer.empty()) continue;
    if (!known) known = &file;
    const std::string first = tokenizer_of_manifest(known->manifest());
    check(tokenizer == first, file.path(), " was made with the tokenizer ", tokenizer, ", ", known->path(),
          " with ", first, kRemedy);
  }
}

}  // namespace

RecordKind records_of(const AnswerLoss& loss) {
  if (loss.has_pairs()) return RecordKind::pairs;
  if (loss.kind == LossKind::kto) return RecordKind::labels;
  return loss.is_used() ? RecordKind::rollouts : RecordKind::samples;
}

std::string tokenizer_folder(const Config& config) {
  return tokenizer_folder_of(config.data.tokenizer.empty() ? config.init_from : config.data.tokenizer);
}

RunData::RunData(const DataFiles& paths, const RunSetup& setup, bool evaluation)
    : names(names_of(named_files(paths))),
      files(opened(named_files(paths),
                   setup.config.data.max_samples * documents_per_record(records_of(setup.config.loss)))),
      data(pointers_to(files), evaluation ? std::vector<double>{} : setup.config.data.weights,
           data_options(setup, evaluation)),
      seq_len(setup.seq_len()),
      packing(data_options(setup, evaluation).packing) {
  const std::string tokenizer = tokenizer_of(setup.config);
  for (const TokenFile& file : files) {
    check_file(file, tokenizer, setup);
    check_records(file, setup.config.loss);
    check_images(file, setup);
  }
  check_alike(files);
}

void RunData::open_columns(const AnswerLoss& loss, const std::vector<ReferenceFile>& references) {
  std::vector<std::vector<const TokenColumn*>> of_files(files.size());
  for (size_t i = 0; i < files.size(); ++i)
    for (const AnswerColumn of : columns_of(loss)) {
      columns.push_back(of == AnswerColumn::advantage ? advantages_of(files[i])
                        : of == AnswerColumn::sampled
                            ? logprobs_of(files[i])
                            : std::make_unique<const TokenColumn>(
                                  references[i].path, files[i].whole_size(), references[i].identity,
                                  "remove it, and the next run makes it again"));
      check(columns.back() != nullptr, files[i].path(),
            ": its records have no \"logprobs\", which train.loss = \"", loss.kind,
            "\" needs: the log-probabilities with which the tokens were sampled");
      of_files[i].push_back(columns.back().get());
    }
  data.set_columns(std::move(of_files));
}

bool RunData::has_untrained_places() const {
  for (size_t i = 0; i < files.size(); ++i)
    if (files[i].has_mask() || data.source(i).packed()) return true;
  return false;
}

int64_t RunData::token_count() const {
  int64_t count = 0;
  for (const TokenFile& file : files) count += file.size();
  return count;
}

int64_t RunData::document_count() const {
  int64_t count = 0;
  for (const TokenFile& file : files) count += file.document_count();
  return count;
}

std::string RunData::describe() const {
  const std::string epoch = str("an epoch is ", with_commas(data.steps_per_epoch()), " steps");
  if (files.size() == 1) return describe_file(0) + "; " + epoch;
  std::string text;
  for (size_t i = 0; i < files.size(); ++i) {
    const double share = data.mixture().share(i), own = static_cast<double>(data.source(i).count());
    text += str(names[i], ": ", describe_file(i), "; ", fixed(100 * share, 2), "% of the run, ",
                fixed(share * static_cast<double>(data.sequence_count()) / own, 2), " times in an epoch\n",
                std::string(10, ' '));
  }
  return str(text, epoch, ", with as many sequences as all files have, ", with_commas(data.sequence_count()));
}

std::string RunData::describe_file(size_t i) const {
  const TokenFile& file = files[i];
  const Sequences& sequences = data.source(i);
  std::string text =
      str(file.path(), ": ", with_commas(file.size()), " tokens in ", with_commas(file.document_count()),
          " documents, ", with_commas(sequences.count()), " sequences");
  if (const PackedSequences* const packed = sequences.packed()) {
    const auto places = static_cast<double>(sequences.count() * seq_len);
    text += str(" filled to ", fixed(100 * static_cast<double>(packed->used_tokens()) / places, 1), "%");
    if (file.has_images()) {
      const int64_t patches = patches_of_sequence(packing, file.image_input().rules);
      text += str(" with tokens, to ",
                  fixed(100 * static_cast<double>(packed->used_patches()) /
                            static_cast<double>(sequences.count() * patches),
                        1),
                  "% with patches of images");
    }
    const PackedSequences::Losses& losses = packed->losses();
    const auto add = [&](int64_t count, const char* what, const char* loss) {
      if (count > 0) text += str(", ", counted(count, what), loss);
    };
    add(losses.empty, "empty document", " dropped");
    add(losses.untrained, noun_of(packing.records), " without trained tokens dropped");
    add(losses.long_examples, noun_of(packing.records), " longer than data.seq_len dropped");
    add(losses.images, "document", " dropped whose images do not fit data.seq_len and data.max_patches");
    add(losses.truncated, "document", " truncated");
    add(losses.truncated_tokens, "token", " lost by that");
  }
  if (file.left_out() > 0)
    text += str("; data.max_samples leaves out ",
                counted(file.left_out() / documents_per_record(packing.records), noun_of(packing.records)));
  return text;
}

}  // namespace flatshard
