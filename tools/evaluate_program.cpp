#include <cmath>
#include <filesystem>
#include <iomanip>
#include <optional>
#include <ostream>
#include <sstream>

#include "comm/gpu_place.h"
#include "runtime/gpu.h"
#include "runtime/parallel.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "text/data/sample_encoder.h"
#include "text/data/token_file.h"
#include "tools/inference/loss_meter.h"
#include "tools/inference/similarity.h"
#include "tools/model_options.h"
#include "tools/programs.h"
#include "train/setup/device_choice.h"

namespace flatshard {
namespace {

struct Options {
  ModelOptions model;
  std::string data, out, chat_template, text_field = "text";
  std::vector<std::string> columns;
  int64_t max_new_tokens = 512, batch = 8;
  std::optional<int64_t> seq_len;
  bool force = false;
};

constexpr int64_t kSeqLen = 1024;

// FOLDER and DATA, and how to run the model; then the command's own options.
std::vector<Option> with_model_options(Options& o, std::initializer_list<Option> own) {
  std::vector<Option> options{
      {"FOLDER",
       &o.model.folder,
       "model folder, adapter folder, run folder or checkpoint (RUN/best, RUN/latest)",
       {.required = true}},
      {"DATA", &o.data, "file to evaluate on", {.required = true}}};
  add_model_options(options, o.model);
  options.insert(options.end(), own);
  return options;
}

Command loss_command(Options& o) {
  return {
      .name = "loss",
      .about =
          "Prints the mean loss per token of a file, and its exponential, the perplexity. DATA is a token "
          "file,\n"
          "of which trained tokens count, or text, JSON lines or a table, as prepare reads them, for the\n"
          "folder's tokenizer. "
          "Documents are cut into windows, and the model sees nothing before a window.",
      .options = with_model_options(
          o, {{"--seq-len", &o.seq_len, "tokens per window (default: 1024, if the model has the positions)"},
              {"--text-field",
               &o.text_field,
               "field of JSON lines, or column, with the text, unless they are conversations",
               {.shows_default = true}},
              {"--columns",
               &o.columns,
               "columns to read of a Parquet or Arrow table; default: all",
               {.type = "NAME,...", .separator = ','}}})};
}

Command similarity_command(Options& o) {
  constexpr NumberRange kCount{1, 1 << 20};
  return {
      .name = "similarity",
      .about =
          "Answers every record of a JSON lines file, always with the most likely token, and compares the "
          "answer\n"
          "with the reference: 1 - cos of the mean final hidden states of the two texts, 0 at best and 2 at "
          "worst.\n"
          "A record has \"messages\", of which the last is the reference, or \"prompt\" and \"completion\".",
      .options = with_model_options(
          o, {{"--out", &o.out, "CSV file for answers and scores", {.type = "FILE", .required = true}},
              {"--force", &o.force, "replace the output file if it exists"},
              {"--max-new-tokens",
               &o.max_new_tokens,
               "most tokens of an answer",
               {.shows_default = true, .range = kCount}},
              {"--batch",
               &o.batch,
               "prompts processed at a time by a rank",
               {.shows_default = true, .range = kCount}},
              {"--chat-template", &o.chat_template,
               "built-in chat template in place of the folder's, such as chatml"}})};
}

// The passes that a rank computes: in turn, so that the sums can be added in order on any number of ranks.
class SharedPasses {
 public:
  SharedPasses(LossMeter& meter, World& world) : meter_(meter), world_(world) {}

  void add(LossWindow window) {
    pending_.push_back(std::move(window));
    if (meter_.windows_of_pass(pending_) == pending_.size()) return;
    LossWindow next = std::move(pending_.back());
    pending_.pop_back();
    run();
    pending_.push_back(std::move(next));
  }

  // The sums of all windows.
  LossSum finish() {
    if (!pending_.empty()) run();
    std::string mine;
    std::ostringstream text;
    text << std::hexfloat;
    for (const LossSum& s : sums_) text << s.sum << ' ' << s.targets << '\n';
    std::vector<std::istringstream> parts;
    for (std::string& part : world_.all_gather_texts(text.str(), "losses"))
      parts.emplace_back(std::move(part));
    LossSum total;
    for (int64_t pass = 0; pass < passes_; ++pass) {
      std::string sum, targets;
      parts[static_cast<size_t>(pass % world_.size())] >> sum >> targets;
      total.sum += std::stod(sum);
      total.targets += std::stod(targets);
    }
    return total;
  }

 private:
  void run() {
    if (passes_++ % world_.size() == world_.rank()) {
      LossSum& sum = sums_.emplace_back();
      for (const LossSum& window : meter_.measure(pending_)) {
        sum.sum += window.sum;
        sum.targets += window.targets;
      }
    }
    pending_.clear();
  }

  LossMeter& meter_;
  World& world_;
  std::vector<LossWindow> pending_;
  std::vector<LossSum> sums_;  // of this rank's passes
  int64_t passes_ = 0;
};

// Adds the windows of a file's documents; returns the number of documents.
int64_t add_file(const Options& o, const ModelSource& source, int64_t vocab, int64_t seq_len,
                 SharedPasses& passes) {
  int64_t documents = 0;
  const auto take = [&](LossWindow window) { passes.add(std::move(window)); };
  if (is_token_file(o.data)) {
    const TokenFile file(o.data);
    check(
        !file.has_images(), o.data,
        ": has images, which evaluate loss does not read; give the file to a run in data.eval for its loss");
    check(file.vocab() <= vocab, o.data, ": has a vocabulary of ", file.vocab(), ", but the model's is ",
          vocab);
    file.each_document([&](int64_t begin, int64_t length) {
      std::vector<int32_t> tokens(static_cast<size_t>(length));
      std::vector<uint8_t> trained(file.has_mask() ? tokens.size() : 0);
      file.read(begin, tokens);
      if (file.has_mask()) file.read_mask(begin, trained);
      cut_windows(tokens, trained, seq_len, take);
      ++documents;
    });
    return documents;
  }
  const TextCodec codec(source, vocab);
  std::optional<SampleEncoder> encoder;
  if (codec.has_tokenizer())
    encoder.emplace(EncoderOptions{.tokenizer = tokenizer_folder(source), .text_field = o.text_field});
  const auto add = [&](const Record& record) {
    const Sample sample =
        encoder
            ? encoder->encode(record)
            : Sample{.tokens = codec.encode(
                         record.is_json ? text_field(record.text, o.text_field, record.where) : record.text)};
    cut_windows(sample.tokens, sample.trained, seq_len, take);
    ++documents;
  };
  read_records(o.data, TextSplit::none, add, o.columns);
  return documents;
}

void evaluate_loss(const Options& o, const ModelSource& source, Device device, World& world,
                   std::ostream& out) {
  const ModelConfig config = read_model_config(source);
  const int64_t seq_len = o.seq_len.value_or(std::min(kSeqLen, config.max_positions));
  LossMeter meter(source, o.model.compute_dtype(), seq_len, device);
  SharedPasses passes(meter, world);
  const int64_t documents = add_file(o, source, config.vocab, seq_len, passes);
  const LossSum total = passes.finish();
  check(total.targets > 0, o.data, " has no targets to evaluate on");
  if (world.rank() != 0) return;
  const double loss = total.sum / total.targets;
  out << "loss " << std::setprecision(9) << loss << ", perplexity " << std::setprecision(6) << std::exp(loss)
      << "; " << counted(documents, "document") << ", "
      << counted(static_cast<int64_t>(total.targets), "target") << ", windows of " << seq_len << '\n';
}

void evaluate_similarity(const Options& o, const ModelSource& source, Device device, World& world,
                         std::ostream& out) {
  check(o.force || !std::filesystem::exists(o.out), o.out,
        ": exists already; give another name, or --force to replace it");
  const TextCodec codec(source, read_model_config(source).vocab, o.chat_template);
  const std::vector<PromptRecord> records = read_prompt_file(o.data);
  const std::vector<ScoredAnswer> answers = score_answers(
      source, codec, records,
      {.dtype = o.model.compute_dtype(), .device = device, .most_tokens = o.max_new_tokens, .batch = o.batch},
      world);
  if (world.rank() != 0) return;
  write_whole_file(o.out, similarity_csv(records, answers));
  out << o.out << ": " << counted(std::ssize(answers), "answer") << '\n'
      << describe_differences(records, answers)
      << "==> Average semantic similarity score: " << std::setprecision(4) << average_score(answers)
      << " (0 is the best, 2 is the worst); exact match: " << exact_answers(answers) << " of "
      << answers.size() << '\n';
}

}  // namespace

int run_evaluate(const Arguments& arguments, const Streams& streams) {
  Options options;
  const Command program{.name = "evaluate",
                        .about = "Evaluates a trained model. Under mpirun the ranks divide the work.",
                        .commands = {loss_command(options), similarity_command(options)}};
  std::string command;
  const auto read = [&] {
    command = parse_arguments(program, arguments).name;
    return kMeetingTime;
  };
  const auto run = [&](World& world) {
    set_thread_count(threads_for(world));
    const Device device = choose_device("--device", options.model.device, place_on_gpu(world).index);
    select_gpu(device);
    if (const std::string note = why_on_cpu(options.model.device); !note.empty() && world.rank() == 0)
      streams.err << note << '\n';
    const ModelSource source = options.model.source();
    if (world.rank() == 0) report_source(source, streams.err);
    (command == "loss" ? evaluate_loss : evaluate_similarity)(options, source, device, world, streams.out);
    return 0;
  };
  return run_on_ranks({.name = program.name, .read = read, .run = run}, streams);
}

}  // namespace flatshard
