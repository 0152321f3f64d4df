#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <iomanip>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <sstream>

#include "hub/prompt_images.h"
#include "runtime/log.h"
#include "runtime/parallel.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "text/data/preference.h"
#include "text/data/sample_encoder.h"
#include "text/data/token_file.h"
#include "text/jinja/template_date.h"
#include "tools/inference/expert_use.h"
#include "tools/inference/loss_meter.h"
#include "tools/inference/similarity.h"
#include "tools/model_options.h"
#include "tools/programs.h"
namespace flatshard {
namespace {

struct Options {
  ModelOptions model;
  std::string data, out, reference, chat_template, date, text_field = "text";
  std::vector<std::string> columns;
  int64_t max_new_tokens = 512, batch = 8;
  std::optional<int64_t> seq_len;
  bool force = false;
};

constexpr int64_t kSeqLen = 1024;

// The options FOLDER, DATA and the settings of the model, followed by the command's own options.
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

// The options of a command that reads the text of DATA: the model's options, the options for reading, and the
// command's own.
std::vector<Option> with_text_options(Options& o, const char* seq_len, std::initializer_list<Option> own) {
  std::vector<Option> options =
      with_model_options(o, {{"--seq-len", &o.seq_len, seq_len},
                             template_option(o.chat_template),
                             date_option(o.date),
                             {"--columns",
                              &o.columns,
                              "columns to read of a Parquet or Arrow table; default: all",
                              {.type = "NAME,...", .separator = ','}}});
  options.insert(options.end(), own);
  return options;
}

Option text_field_option(Options& o) {
  return {"--text-field",
          &o.text_field,
          "field of JSON lines, or column, with the text, unless they are conversations",
          {.shows_default = true}};
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
      .options = with_text_options(o, "tokens per window (default: 1024, if the model has the positions)",
                                   {text_field_option(o)})};
}

Command logprobs_command(Options& o) {
  return {
      .name = "logprobs",
      .about =
          "Writes the logarithm of the probability of every token of a file, in DATA's order a line of JSON "
          "for\n"
          "each document: its tokens, their logarithms, of which the first token has none, whether a run "
          "would\n"
          "train them, and the number and the sum of those. DATA is as for loss; documents are not cut.",
      .options = with_text_options(
          o, "most tokens of a document, less one (default: 1024, if the model has the positions)",
          {text_field_option(o),
           {"--out", &o.out, "JSON lines file to write", {.type = "FILE", .required = true}},
           force_option(o.force)})};
}

Command experts_command(Options& o) {
  return {
      .name = "experts",
      .about =
          "Prints where the routers of a mixture of experts send the tokens of a file, a line for each "
          "block: "
          "the\n"
          "largest load of an expert, as a multiple of the mean one; the entropy of the loads, as a share of "
          "the largest\n"
          "possible; the experts without tokens; and the mutual information of a token and its expert, in "
          "bits, beside\n"
          "that of shuffled choices, which is what chance makes of it. DATA is as for loss.",
      .options =
          with_text_options(o, "tokens per window (default: 1024, if the model has the positions)",
                            {text_field_option(o),
                             {"--out", &o.out, "picture (SVG) of the loads to write", {.type = "FILE"}},
                             force_option(o.force)})};
}

Command preference_command(Options& o) {
  return {
      .name = "preference",
      .about =
          "Prints for how many pairs of answers the chosen one is more probable than the rejected one, and "
          "the\n"
          "mean margin. A record of DATA, JSON lines or a table, has \"prompt\", \"chosen\" and "
          "\"rejected\", "
          "which are\n"
          "texts or lists of messages; without \"prompt\", both answers begin with it. The margin is the "
          "logarithm of\n"
          "the probability of the chosen answer, less that of the rejected one; with --reference, of what "
          "they have\n"
          "become since.",
      .options = with_text_options(
          o,
          "most tokens of a prompt with its answer, less one (default: 1024, if the model has the positions)",
          {{"--reference",
            &o.reference,
            "model folder whose margins are subtracted, such as the model before training; it reads the "
            "tokens of "
            "FOLDER",
            {.type = "FOLDER"}},
           {"--out", &o.out, "JSON lines file to write, with the sums of each pair", {.type = "FILE"}},
           force_option(o.force)})};
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
              force_option(o.force),
              {"--max-new-tokens",
               &o.max_new_tokens,
               "most tokens of an answer",
               {.shows_default = true, .range = kCount}},
              {"--batch",
               &o.batch,
               "prompts processed at a time by a rank",
               {.shows_default = true, .range = kCount}},
              template_option(o.chat_template),
              date_option(o.date)})};
}

// A pass of a model over windows of documents.
struct MeasuredPass {
  int64_t number;  // among the passes of all ranks
  std::span<const LossWindow> windows;
  std::vector<std::vector<float>> losses;
  const LossMeter& meter;
};

// Documents that a model measures in passes. Ranks take turns, so that the results are in order for any
// number of ranks.
class SharedPasses {
 public:
  // Describes a pass, or the losses of a window, as text that another rank can read.
  using Describe = std::function<std::string(const MeasuredPass& pass)>;
  using DescribeWindow = std::string (*)(const LossWindow& window, std::span<const float> losses);

  SharedPasses(const Options& o, const ModelSource& model, Device device, World& world, Describe describe)
      : config_(read_model_config(model)),
        meter_(model, o.model.compute_dtype(), o.seq_len.value_or(std::min(kSeqLen, config_.max_positions)),
               device),
        world_(world),
        describe_(std::move(describe)) {}
  SharedPasses(const Options& o, const ModelSource& model, Device device, World& world,
               DescribeWindow describe)
      : SharedPasses(o, model, device, world, [describe](const MeasuredPass& pass) {
          std::string all;
          for (size_t i = 0; i < pass.windows.size(); ++i) all += describe(pass.windows[i], pass.losses[i]);
          return all;
        }) {}

  int64_t vocab() const { return config_.vocab; }
  int64_t seq_len() const { return meter_.seq_len(); }
  int64_t documents() const { return documents_; }

  // Adds a document, cut into windows.
  void add(const LossDocument& document) {
    cut_windows(document, seq_len(), [&](LossWindow window) { add(std::move(window)); });
    ++documents_;
  }

  // Adds a document as one window.
  void add_whole(const LossDocument& document) {
    check(document.tokens.size() > 1, document.where,
          ": has fewer than two tokens, so none with a probability");
    check(document.inputs() <= seq_len(), document.where, ": has ", document.tokens.size(),
          " tokens: set --seq-len to ", document.inputs(), " or more");
    add(document);
  }

  // Returns the descriptions of all windows, in order. Collective.
  std::string finish() {
    if (!pending_.empty()) run();
    std::vector<std::istringstream> parts;
    for (std::string& part : world_.all_gather_texts(mine_, "losses")) parts.emplace_back(std::move(part));
    std::string all, pass;
    for (size_t i = 0; i < static_cast<size_t>(passes_); ++i) {
      std::getline(parts[i % parts.size()], pass, kEnd);
      all += pass;
    }
    return all;
  }

 private:
  static constexpr char kEnd = '\0';

  void add(LossWindow window) {
    pending_.push_back(std::move(window));
    if (meter_.windows_of_pass(pending_) == pending_.size()) return;
    LossWindow next = std::move(pending_.back());
    pending_.pop_back();
    run();
    pending_.push_back(std::move(next));
  }

  void run() {
    if (passes_++ % world_.size() == world_.rank()) {
      mine_ += describe_(
          {.number = passes_ - 1, .windows = pending_, .losses = meter_.measure(pending_), .meter = meter_});
      mine_ += kEnd;
    }
    pending_.clear();
  }

  ModelConfig config_;
  LossMeter meter_;
  World& world_;
  Describe describe_;
  std::vector<LossWindow> pending_;
  std::string mine_;  // descriptions of this rank's passes
  int64_t passes_ = 0, documents_ = 0;
};

using TakeDocument = std::function<void(const LossDocument& document)>;

// Throws an Error unless a token file's images are cut like those of the model in `folder`, except for the
// bound of their size.
void check_images(const TokenFile& file, const std::string& folder) {
  const ImageInput& made = file.image_input();
  const ImageRules& rules = made.rules;
  const auto edge = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(rules.most_pixels))));
  const std::optional<ImageInput> own = read_image_input(folder),
                                  bounded = read_image_input(folder,
                                                             rules.by_squares() ? edge : rules.longest_edge);
  check(own.has_value(), file.path(), ": has images, and the model in ", folder, " reads none");
  check(made == *own || made == *bounded, file.path(), ": was made for images as ", to_json(made),
        ", but the model in ", folder, " reads them as ", to_json(*own), ": make it again with prepare");
}

// Calls `take` for each document of a token file.
void each_document_of(const std::shared_ptr<const TokenFile>& file, const TakeDocument& take) {
  int64_t count = 0;
  file->each_document([&](int64_t begin, int64_t length) {
    std::vector<int32_t> tokens(static_cast<size_t>(length));
    std::vector<uint8_t> trained(file->has_mask() ? tokens.size() : 0);
    file->read(begin, tokens);
    if (file->has_mask()) file->read_mask(begin, trained);
    LossDocument document{
        .tokens = tokens, .trained = trained, .where = str(file->path(), ": document ", ++count)};
    if (file->has_images())
      for (const TokenImage& image : file->images()->images_in(begin, begin + length))
        document.images.push_back({.begin = image.extent.begin - begin,
                                   .end = image.extent.end - begin,
                                   .append = [file, image](PromptImages& images) {
                                     const ImageTable& table = *file->images();
                                     append_image(file->image_input(), table.name_of(image),
                                                  table.read(image), image.facts, images);
                                   }});
    take(document);
  });
}

// Converts records to documents with the tokenizer of a model's folder.
class DocumentEncoder {
 public:
  DocumentEncoder(const Options& o, const ModelSource& source, int64_t vocab)
      : codec_(source, vocab, o.chat_template, o.date),
        text_field_(o.text_field),
        images_(std::make_shared<const ImageInput>(codec_.image_input().value_or(ImageInput{}))) {
    if (codec_.has_tokenizer())
      samples_.emplace(EncoderOptions{.tokenizer = tokenizer_folder(source),
                                      .chat_template = o.chat_template,
                                      .date = o.date,
                                      .text_field = o.text_field});
  }

  bool has_tokenizer() const { return codec_.has_tokenizer(); }

  void encode(const Record& record, const TakeDocument& take) const {
    const Sample sample =
        samples_
            ? samples_->encode(record)
            : Sample{.tokens = codec_.encode(
                         record.is_json ? text_field(record.text, text_field_, record.where) : record.text)};
    LossDocument document{.tokens = sample.tokens, .trained = sample.trained, .where = record.where};
    for (const DocumentImage& image : sample.images)
      document.images.push_back({.begin = image.extent.begin,
                                 .end = image.extent.end,
                                 .append = [input = images_, image](PromptImages& images) {
                                   append_image(*input, name_of(image.source), read_image(image.source),
                                                image.facts, images);
                                 }});
    take(document);
  }

 private:
  TextCodec codec_;
  std::string text_field_;
  std::shared_ptr<const ImageInput> images_;  // the model's rules for reading images, if it reads any
  std::optional<SampleEncoder> samples_;
};

// Calls `take` for each document of a file.
void each_document(const Options& o, const ModelSource& source, int64_t vocab, const TakeDocument& take) {
  if (is_token_file(o.data)) {
    check(o.chat_template.empty(), o.data, ": has tokens already, so --chat-template changes nothing");
    check(o.date.empty(), o.data, ": has tokens already, so --date changes nothing");
    const auto file = std::make_shared<const TokenFile>(o.data);
    if (const std::string note = file->note_on_sums(); !note.empty()) log_info(note);
    check(file->vocab() <= vocab, o.data, ": has a vocabulary of ", file->vocab(), ", but the model's is ",
          vocab);
    if (file->has_images()) check_images(*file, source.folder);
    return each_document_of(file, take);
  }
  const DocumentEncoder encoder(o, source, vocab);
  read_records(
      o.data, TextSplit::none, [&](const Record& record) { encoder.encode(record, take); }, o.columns);
}

// Calls `take` for the chosen and the rejected answer of each pair, each with its prompt.
void each_answer(const Options& o, const ModelSource& source, int64_t vocab, const TakeDocument& take) {
  check(!is_token_file(o.data), o.data,
        ": is a token file, which has no pairs: give the JSON lines or table");
  const DocumentEncoder encoder(o, source, vocab);
  check(encoder.has_tokenizer(), source.folder, ": has no tokenizer, which preferences need");
  const auto add = [&](const Record& record) {
    const PreferencePair pair = pair_of(record);
    for (const Record* const answer : {&pair.chosen, &pair.rejected})
      encoder.encode(*answer, [&](const LossDocument& document) {
        check(std::find(document.trained.begin(), document.trained.end(), 1) != document.trained.end(),
              record.where, ": has an empty answer");
        take(document);
      });
  };
  read_records(o.data, TextSplit::none, add, o.columns);
}

// The sum of a window's losses, in a form that another rank can parse.
std::string described(const LossWindow& window, std::span<const float> losses) {
  const LossSum sum = sum_of(window, losses);
  return str(std::hexfloat, sum.sum, ' ', sum.targets, '\n');
}

std::vector<LossSum> sums_in(const std::string& descriptions) {
  std::vector<LossSum> sums;
  std::istringstream words(descriptions);
  for (std::string sum, targets; words >> sum >> targets;)
    sums.push_back({.sum = std::stod(sum), .targets = std::stod(targets)});
  return sums;
}

void evaluate_loss(const Options& o, const ModelSource& source, Device device, World& world,
                   std::ostream& out) {
  SharedPasses passes(o, source, device, world, described);
  each_document(o, source, passes.vocab(), [&](const LossDocument& document) { passes.add(document); });
  LossSum total;
  for (const LossSum& sum : sums_in(passes.finish())) total += sum;
  check(total.targets > 0, o.data, " has no targets to evaluate on");
  if (world.rank() != 0) return;
  const double loss = total.sum / total.targets;
  out << "loss " << std::setprecision(9) << loss << ", perplexity " << std::setprecision(6) << std::exp(loss)
      << "; " << counted(passes.documents(), "document") << ", "
      << counted(static_cast<int64_t>(total.targets), "target") << ", windows of " << passes.seq_len()
      << '\n';
}

template <class Number>
std::string shortest(Number value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

// Prints a document as a line of JSON: its tokens, the log-probability of each token but the first, which
// tokens are trained, and the sum over the trained ones.
std::string logprobs_line(const LossWindow& document, std::span<const float> losses) {
  const LossSum sum = sum_of(document, losses);
  std::string tokens, logprobs = "null", trained;
  for (size_t i = 0; i < document.tokens.size(); ++i) {
    const char* const between = i == 0 ? "" : ",";
    tokens += str(between, document.tokens[i]);
    trained += str(between, document.trained[i] ? 1 : 0);
    if (i > 0) logprobs += between + shortest(-losses[i - 1]);
  }
  return str(R"({"tokens":[)", tokens, R"(],"logprobs":[)", logprobs, R"(],"trained":[)", trained,
             R"(],"targets":)", sum.targets, R"(,"sum":)", shortest(-sum.sum), "}\n");
}

void evaluate_logprobs(const Options& o, const ModelSource& source, Device device, World& world,
                       std::ostream& out) {
  check_is_new(o.out, o.force);
  SharedPasses passes(o, source, device, world, logprobs_line);
  each_document(o, source, passes.vocab(), [&](const LossDocument& document) { passes.add_whole(document); });
  const std::string lines = passes.finish();
  if (world.rank() != 0) return;
  write_whole_file(o.out, lines);
  out << o.out << ": " << counted(passes.documents(), "document") << '\n';
}

void evaluate_experts(const Options& o, const ModelSource& source, Device device, World& world,
                      std::ostream& out) {
  if (!o.out.empty()) check_is_new(o.out, o.force);
  const ModelConfig config = read_model_config(source);
  check(config.experts > 0, source.folder, ": family ", config.family, " has no experts");
  ExpertUse own(config), all(config);
  SharedPasses passes(o, source, device, world, [&](const MeasuredPass& pass) {
    std::vector<int32_t> tokens;
    for (const LossWindow& window : pass.windows)
      tokens.insert(tokens.end(), window.tokens.begin(), window.tokens.begin() + window.inputs);
    own.add(tokens, pass.meter.choices(), pass.number);
    return std::string();
  });
  each_document(o, source, passes.vocab(), [&](const LossDocument& document) { passes.add(document); });
  passes.finish();
  for (const std::string& counts : world.all_gather_texts(own.text(), "experts")) all.add(counts);
  check(all.tokens() > 0, o.data, " has no tokens to evaluate on");
  if (world.rank() != 0) return;
  out << all.table() << counted(passes.documents(), "document") << ", " << counted(all.tokens(), "token")
      << '\n';
  if (o.out.empty()) return;
  write_whole_file(o.out, all.picture());
  out << o.out << ": loads of " << counted(config.expert_blocks(), "block") << " and "
      << counted(config.experts, "expert") << '\n';
}

// The losses of the answers in `model`, in the order of the file: chosen, rejected, chosen, ... `source` has
// the tokenizer.
std::vector<LossSum> losses_of_answers(const Options& o, const ModelSource& model, const ModelSource& source,
                                       Device device, World& world) {
  SharedPasses passes(o, model, device, world, described);
  each_answer(o, source, passes.vocab(), [&](const LossDocument& document) { passes.add_whole(document); });
  return sums_in(passes.finish());
}

struct AnswerScore {
  double sum = 0, reference = 0, tokens = 0;  // sum, reference: sums of log-probabilities of its tokens
  double growth() const { return sum - reference; }
};

void evaluate_preference(const Options& o, const ModelSource& source, Device device, World& world,
                         std::ostream& out) {
  if (!o.out.empty()) check_is_new(o.out, o.force);
  std::vector<AnswerScore> answers;
  for (const LossSum& loss : losses_of_answers(o, source, source, device, world))
    answers.push_back({.sum = -loss.sum, .tokens = loss.targets});
  if (!o.reference.empty()) {
    const std::vector<LossSum> before =
        losses_of_answers(o, find_model(o.reference, ""), source, device, world);
    for (size_t i = 0; i < answers.size(); ++i) answers[i].reference = -before[i].sum;
  }
  check(!answers.empty(), o.data, " has no pairs");
  if (world.rank() != 0) return;
  double right = 0, right_per_token = 0, margins = 0;
  std::string lines;
  for (size_t i = 0; i + 1 < answers.size(); i += 2) {
    const AnswerScore &chosen = answers[i], &rejected = answers[i + 1];
    margins += chosen.growth() - rejected.growth();
    right += chosen.growth() > rejected.growth() ? 1 : 0;
    right_per_token += chosen.growth() / chosen.tokens > rejected.growth() / rejected.tokens ? 1 : 0;
    for (const auto& [name, answer] : {std::pair{"{\"chosen\":", &chosen}, {",\"rejected\":", &rejected}}) {
      lines += str(name, R"({"targets":)", answer->tokens, R"(,"sum":)", shortest(answer->sum));
      if (!o.reference.empty()) lines += R"(,"reference":)" + shortest(answer->reference);
      lines += '}';
    }
    lines += "}\n";
  }
  if (!o.out.empty()) write_whole_file(o.out, lines);
  const double pairs = static_cast<double>(answers.size()) / 2;
  out << std::setprecision(4) << "accuracy " << right / pairs << ", per token " << right_per_token / pairs
      << "; mean margin " << margins / pairs << "; " << counted(std::ssize(answers) / 2, "pair") << '\n';
}

void evaluate_similarity(const Options& o, const ModelSource& source, Device device, World& world,
                         std::ostream& out) {
  check_is_new(o.out, o.force);
  const TextCodec codec(source, read_model_config(source).vocab, o.chat_template, o.date);
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
  const Command program{
      .name = "evaluate",
      .about = "Evaluates a trained model. Under mpirun the ranks divide the work.",
      .commands = {loss_command(options), logprobs_command(options), preference_command(options),
                   similarity_command(options), experts_command(options)}};
  std::string command;
  const auto read = [&] {
    command = parse_arguments(program, arguments).name;
    if (!options.date.empty()) check_date("--date", options.date);
    return kMeetingTime;
  };
  const auto run = [&](World& world) {
    set_thread_count(threads_for(world));
    const Device device = start_device(options.model, world, streams.err);
    const ModelSource source = options.model.source();
    report_source(source, world, streams.err);
    const auto evaluate = command == "loss"         ? evaluate_loss
                          : command == "logprobs"   ? evaluate_logprobs
                          : command == "preference" ? evaluate_preference
                          : command == "experts"    ? evaluate_experts
                                                    : evaluate_similarity;
    evaluate(options, source, device, world, streams.out);
    return 0;
  };
  return run_on_ranks({.name = program.name, .read = read, .run = run}, streams);
}

}  // namespace flatshard
