#include <chrono>
#include <iomanip>
#include <optional>
#include <ostream>
#include <tuple>

#include "hub/prompt_images.h"
#include "runtime/parallel.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "text/chat/prompt_file.h"
#include "text/data/corpus.h"
#include "text/jinja/template_date.h"
#include "tools/inference/chat_session.h"
#include "tools/model_options.h"
#include "tools/programs.h"
namespace flatshard {
namespace {

constexpr char kAbout[] =
    "Continues text with a trained model, answers a file of prompts, or holds a conversation.\n\n"
    "FOLDER is a model folder (config.json, model.safetensors) or a run folder with a model/.\n"
    "By default it is the last run, whose path runs/latest records in this folder or the nearest one "
    "above.\n\n"
    "Text becomes tokens by the folder's tokenizer, and ends at an end token. Without a tokenizer, if the\n"
    "vocabulary is 256, a token is a byte of text; otherwise prompt and output are token numbers separated\n"
    "by spaces.\n\n"
    "Under mpirun the ranks share the weights: each keeps a part, and gathers a layer while computing with "
    "it.";

constexpr int64_t kMostPromptBytes = int64_t{16} << 20;
constexpr int64_t kChatContext = 4096;

struct Options {
  ModelOptions model;
  std::string chat_template, date, system;
  std::optional<std::string> prompt, prompt_file, prompts, out;
  std::vector<std::string> images;
  bool chat = false, force = false;
  int64_t max_tokens = 200, samples = 1, seed = 1, batch = 8;
  std::optional<int64_t> context;
  SamplerOptions sampler{.temperature = 0.8};
};

std::vector<Option> options_of(Options& o) {
  std::vector<Option> options{
      {"folder",
       &o.model.folder,
       "model folder, adapter folder, run folder or checkpoint (RUN/best, RUN/latest)",
       {.type = "FOLDER"}},
      {"--prompt", &o.prompt, "text to continue; default if tokens are bytes: a line break"},
      {"--prompt-file",
       &o.prompt_file,
       "file with the text to continue",
       {.type = "FILE", .excludes = {"--prompt"}}},
      {"--image",
       &o.images,
       "pictures to show with --prompt, which is then a message to answer",
       {.type = "FILE,...", .separator = ',', .needs = {"--prompt"}}},
      {"--prompts",
       &o.prompts,
       "JSON lines to answer, each with a \"prompt\" or \"messages\"; a last "
       "message of the assistant is not part of the prompt",
       {.type = "FILE", .needs = {"--out"}, .excludes = {"--prompt", "--prompt-file"}}},
      {"--out",
       &o.out,
       "output of --prompts: its lines, each with the member \"answer\" added",
       {.type = "FILE", .needs = {"--prompts"}}},
      force_option(o.force, {"--out"}),
      {"--batch", &o.batch, "prompts processed at a time", {.shows_default = true, .needs = {"--prompts"}}},
      {"--chat",
       &o.chat,
       "hold a conversation: a line of input is a message; Ctrl-C ends an answer, and at the "
       "prompt the program, as /exit does; /help lists the commands",
       {.excludes = {"--prompt", "--prompt-file", "--prompts"}}},
      {"--system",
       &o.system,
       "system message with which the conversation begins",
       {.type = "TEXT", .needs = {"--chat"}}},
      {"--context",
       &o.context,
       "most tokens of a conversation (default: 4096, if the model has them)",
       {.needs = {"--chat"}}},
      {"--samples",
       &o.samples,
       "number of continuations",
       {.shows_default = true, .excludes = {"--prompts", "--chat"}}},
      template_option(o.chat_template),
      date_option(o.date),
      {"--max-new-tokens,--max-tokens",
       &o.max_tokens,
       "most tokens of a continuation",
       {.shows_default = true}},
      {"--temperature",
       &o.sampler.temperature,
       "sampling temperature: lower values favour likely tokens; 0: always the most likely one",
       {.shows_default = true}},
      {"--top-k", &o.sampler.top_k, "sample from the k most likely tokens; 0: all", {.shows_default = true}},
      {"--top-p",
       &o.sampler.top_p,
       "sample from the most likely tokens whose probabilities sum to this; 1: all",
       {.shows_default = true}},
      {"--min-p",
       &o.sampler.min_p,
       "sample from tokens at least this fraction as likely as the most likely one; 0: all",
       {.shows_default = true}},
      {"--repetition-penalty",
       &o.sampler.repetition_penalty,
       "divisor of the positive logits, and factor of the negative ones, of tokens that the text "
       "already contains; 1: none",
       {.shows_default = true}},
      {"--seed",
       &o.seed,
       "random seed; sample i, or line i of --prompts, uses seed + i",
       {.shows_default = true}}};
  add_model_options(options, o.model);
  return options;
}

// The options, combined with the settings of the model folder.
class Generation {
 public:
  Generation(const Options& options, const Streams& streams, World& world)
      : o_(options),
        streams_(streams),
        world_(world),
        source_(options.model.source()),
        config_(read_model_config(source_)),
        codec_(source_, config_.vocab, options.chat_template, options.date) {}

  void run() {
    if (o_.chat) return hold_conversation();
    if (o_.prompts) return answer_prompts();
    continue_prompt();
  }

 private:
  Generator generator(int64_t texts, int64_t capacity) const {
    const Device device = start_device(o_.model, world_, streams_.err);
    report_source(source_, world_, streams_.err);
    return Generator(source_, {.dtype = o_.model.compute_dtype(),
                               .texts = texts,
                               .capacity = capacity,
                               .device = device,
                               .world = &world_});
  }
  bool prints() const { return world_.rank() == 0; }

  Sampler sampler(int64_t index) const {
    SamplerOptions options = o_.sampler;
    options.seed = static_cast<uint64_t>(o_.seed + index);
    return Sampler(options);
  }

  void continue_prompt() {
    check(o_.prompt || o_.prompt_file || (config_.vocab == kByteVocab && !codec_.has_tokenizer()),
          codec_.has_tokenizer()
              ? str("--prompt is missing: give the text to continue, or --chat or --prompts")
              : str("--prompt is missing: the vocabulary is ", config_.vocab,
                    ", so give token numbers, such as --prompt \"1 15 7\""));
    const bool answers = !o_.images.empty();
    const Conversation message = answers ? message_with_images() : Conversation{};
    const std::vector<int32_t> prompt = answers ? codec_.encode(message) : codec_.encode(prompt_text());
    check(!prompt.empty(), "the prompt is empty, must have at least one token");
    const PromptImages images = answers ? read_images(*codec_.image_input(), message.images) : PromptImages{};
    Generator texts = generator(1, std::ssize(prompt) + o_.max_tokens);
    const auto print = [&](const std::string& piece) {
      if (prints()) streams_.out << piece << std::flush;
    };
    for (int64_t i = 0; i < o_.samples; ++i) {
      if (i > 0) print("\n---\n");
      TextCodec::Stream decoded(codec_);
      if (!answers)
        for (const int32_t token : prompt) print(decoded.take(token));
      texts.read_prompt(0, prompt, images);
      const auto start = std::chrono::steady_clock::now();
      const Continuation result =
          continue_text(texts, o_.max_tokens, sampler(i), codec_.end_tokens(), [&](int64_t, int32_t token) {
            print(decoded.take(token));
            return true;
          });
      print(decoded.rest());
      count(std::ssize(result.tokens), start);
    }
    print("\n");
    print_speed();
  }

  std::string prompt_text() const {
    return o_.prompt_file ? read_whole_file(*o_.prompt_file, kMostPromptBytes) : o_.prompt.value_or("\n");
  }

  // The prompt as a message that shows the images. Sets the images' sizes.
  Conversation message_with_images() const {
    check(codec_.image_input().has_value(), "--image: the model reads no images");
    Conversation message;
    std::vector<ImageSource> images;
    for (const std::string& path : o_.images) images.push_back({.path = path});
    message.add("user", *o_.prompt, images);
    find_image_sizes(message);
    return message;
  }

  void answer_prompts() {
    check_is_new(*o_.out, o_.force);
    const std::vector<PromptRecord> records = read_prompt_file(*o_.prompts);
    std::vector<Request> requests;
    int64_t longest = 0;
    for (const PromptRecord& record : records) {
      const TextPrompt prompt = encode_prompt(codec_, record);
      check(!prompt.tokens.empty(), record.where, ": the prompt is empty, must have at least one token");
      const int64_t length = std::ssize(prompt.tokens) + o_.max_tokens;
      check(length <= config_.max_positions, record.where, ": the prompt has ", prompt.tokens.size(),
            " tokens, which with --max-new-tokens ", o_.max_tokens, " exceeds the model's ",
            config_.max_positions, " positions");
      longest = std::max(longest, length);
      requests.push_back({prompt.tokens, o_.max_tokens, sampler(std::ssize(requests)),
                          images_of(codec_.image_input(), prompt.images)});
    }
    Generator texts = generator(std::min<int64_t>(o_.batch, std::ssize(requests)), longest);
    const auto start = std::chrono::steady_clock::now();
    const std::vector<Continuation> answers = continue_prompts(texts, requests, codec_.end_tokens());
    std::string lines;
    int64_t tokens = 0;
    for (size_t i = 0; i < records.size(); ++i) {
      lines += with_answer(records[i], codec_.decode(answers[i].tokens)) + '\n';
      tokens += std::ssize(answers[i].tokens);
    }
    count(tokens, start);
    if (!prints()) return;
    write_whole_file(*o_.out, lines);
    streams_.out << *o_.out << ": " << counted(std::ssize(records), "answer") << '\n';
    print_speed();
  }

  void hold_conversation() {
    check(world_.size() == 1, "--chat runs on one rank: start it without mpirun");
    const int64_t context = o_.context.value_or(std::min(kChatContext, config_.max_positions));
    codec_.encode([&] {  // refuses a folder without tokenizer or template before it reads the weights
      Conversation hello;
      if (!o_.system.empty()) hello.add("system", o_.system);
      hello.add("user", "Hello");
      return hello;
    }());
    Generator texts = generator(1, context);
    run_chat(texts, codec_, o_.sampler, o_.max_tokens, o_.system, {streams_.in, streams_.out, streams_.err});
  }

  void count(int64_t tokens, std::chrono::steady_clock::time_point start) {
    tokens_ += tokens;
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  void print_speed() const {
    if (!prints()) return;
    streams_.err << std::fixed << std::setprecision(2) << tokens_ << " tokens in " << seconds_ << " s, "
                 << std::setprecision(1) << static_cast<double>(tokens_) / seconds_ << " tokens/s\n";
  }

  const Options& o_;
  const Streams& streams_;
  World& world_;
  ModelSource source_;
  ModelConfig config_;
  TextCodec codec_;
  int64_t tokens_ = 0;
  double seconds_ = 0;
};

void check_options(Options& o) {
  o.sampler.seed = static_cast<uint64_t>(o.seed);
  const Sampler checked(o.sampler);  // checks the options before anything is loaded
  if (!o.date.empty()) check_date("--date", o.date);
  for (const auto& [name, value, least] : {std::tuple{"--max-new-tokens", o.max_tokens, 1},
                                           {"--samples", o.samples, 1},
                                           {"--batch", o.batch, 1},
                                           {"--seed", o.seed, 0}})
    check(value >= least && value <= INT32_MAX, name, " is ", value, ", must be from ", least, " to ",
          INT32_MAX);
}

}  // namespace

int run_generate(const Arguments& arguments, const Streams& streams) {
  Options options;
  const Command program{.name = "generate", .about = kAbout, .options = options_of(options)};
  const auto read = [&] {
    parse_arguments(program, arguments);
    check_options(options);
    return kMeetingTime;
  };
  const auto run = [&](World& world) {
    set_thread_count(threads_for(world));
    Generation(options, streams, world).run();
    return 0;
  };
  return run_on_ranks({.name = program.name, .read = read, .run = run}, streams);
}

}  // namespace flatshard
