#include "bench/options.h"

namespace flatshard::bench {
namespace {

std::vector<Option> training_options(Options& all) {
  StepOptions& o = all.training;
  constexpr NumberRange kCount{1, 1 << 20};
  return {
      {"--model",
       &o.model,
       "model shape, with --step on one rank",
       {.shows_default = true, .choices = step_models(), .needs = {"--step"}}},
      {"--batch",
       &o.batch,
       "sequences per micro-step",
       {.shows_default = true, .range = kCount, .needs = {"--step"}}},
      {"--seq",
       &o.seq_len,
       "tokens per sequence",
       {.shows_default = true, .range = kCount, .needs = {"--step"}}},
      {"--micro-steps",
       &o.micro_steps,
       "micro-steps per update",
       {.shows_default = true, .range = kCount, .needs = {"--step"}}},
      {"--ops", &all.ops, "on a GPU: also the time of each op of a step by shape", {.needs = {"--step"}}},
      {"--peer",
       &all.peer,
       "also the published speed of LLM.Q for this model, and how its work differs",
       {.needs = {"--step"}}},
      {"--lora",
       &all.lora,
       "time steps on adapters of rank 8 against the frozen model and full training",
       {.needs = {"--step"}, .excludes = {"--json", "--ops", "--peer"}}},
      {"--lora-dropout",
       &o.lora_dropout,
       "dropout on the input of the adapters",
       {.shows_default = true, .range = NumberRange{0, 0.99}, .needs = {"--lora"}}},
  };
}

}  // namespace

std::vector<Option> options_of(Options& o) {
  const std::vector<std::string> other_modes{"--step",      "--comm",  "--checkpoint", "--decode",
                                             "--tokenizer", "--image", "--vm",         "--serve"};
  std::vector<std::string> timing = other_modes;
  timing.insert(timing.end(), {"--json", "--seconds", "--rounds", "--tuned"});
  std::vector<Option> options{
      {"filter", &o.words,
       "words that the label of a case must all contain, such as rmsnorm bf16; f32 is also spelled fp32; "
       "with --step and --decode: fp32 or bf16"},
      {"--device", &o.device, "device: cpu, cuda", {.shows_default = true, .choices = {"cpu", "cuda"}}},
      {"--threads",
       &o.threads,
       "CPU threads (default: all processors of the process)",
       {.range = NumberRange{1, 1024}}},
      {"--json", &o.json_file, "output file for the results in full precision", {.type = "FILE"}},
      {"--seconds",
       &o.seconds,
       "time limit per case, in seconds (default: 2; 10 with --step, or 20 if there are several ranks)",
       {.range = NumberRange{0.01, 3600}}},
      {"--step", &o.step,
       "time training steps instead of ops; under mpirun, sharded against replicated parameters"}};
  const std::vector<Option> training = training_options(o);
  options.insert(options.end(), training.begin(), training.end());
  options.insert(
      options.end(),
      {{"--small", &o.small, "small cases and ceilings, for a quick test"},
       {"--serve",
        &o.serve,
        "read cases from standard input, one per line, and answer each with a line of JSON",
        {.excludes = {"--json"}}},
       {"--comm",
        &o.comm,
        "under mpirun: time collectives against those of MPI",
        {.excludes = {"--step", "--small", "--serve"}}},
       {"--checkpoint",
        &o.checkpoint,
        "time saving and loading of checkpoints against plain files, in the current folder; also "
        "under mpirun",
        {.excludes = {"--step", "--comm", "--small", "--serve"}}},
       {"--decode",
        &o.decode,
        "time generated tokens of a model folder against reading its weights, on the CPU",
        {.type = "FOLDER", .excludes = {"--step", "--comm", "--checkpoint", "--json", "--small", "--serve"}}},
       {"--tokenizer",
        &o.tokenizer.text,
        "time training a tokenizer on the text of a file, and encoding and decoding it",
        {.type = "FILE",
         .excludes = {"--step", "--comm", "--checkpoint", "--decode", "--device", "--json", "--small",
                      "--serve"}}},
       {"--with",
        &o.tokenizer.tokenizer,
        "with --tokenizer: folder or tokenizer.json to encode with (default: the trained one)",
        {.type = "FOLDER", .needs = {"--tokenizer"}}},
       {"--image",
        &o.image,
        "time decoding a picture, and cutting it into the patches of a model",
        {.type = "FILE",
         .needs = {"--of"},
         .excludes = {"--step", "--comm", "--checkpoint", "--decode", "--tokenizer", "--device", "--json",
                      "--small", "--serve"}}},
       {"--of",
        &o.image_model,
        "with --image: folder of the model, whose files say how pictures are cut",
        {.type = "FOLDER", .needs = {"--image"}}},
       {"--bf16",
        &o.bf16,
        "time products of bf16 in bf16 and with operands widened to f32, and tell whether the choice for "
        "this processor is right",
        {.excludes = {"--step", "--comm", "--checkpoint", "--decode", "--tokenizer", "--image", "--device",
                      "--json", "--small", "--serve"}}},
       {"--vm",
        &o.vm,
        "count the costs of the CUDA kernels on the PTX machine; needs no GPU",
        {.excludes = {"--step", "--comm", "--checkpoint", "--decode", "--tokenizer", "--image", "--bf16",
                      "--device", "--threads", "--json", "--seconds", "--small", "--serve"}}},
       {"--opcodes", &o.opcodes, "with --vm: number of executions of each opcode", {.needs = {"--vm"}}},
       {"--resources", &o.resources,
        "print registers, memory and hot loops of the CUDA kernels whose names contain all words"},
       {"--detail",
        &o.detail,
        "also cases that are many: the products of the layers of models, chunks of the head, FP8",
        {.excludes = other_modes}},
       {"--rounds",
        &o.rounds,
        "rounds, each of which times all cases once: interleaved measurements of similar cases",
        {.shows_default = true, .range = NumberRange{1, 1000}, .excludes = other_modes}},
       {"--tuned",
        &o.tuned,
        "on a GPU: also the products with the fastest of cuBLASLt's algorithms",
        {.excludes = other_modes}},
       {"--repeat",
        &o.repeat,
        "run each case this many times instead of timing it, and fail unless all results have the same bits",
        {.range = NumberRange{2, 1 << 20}, .excludes = timing}},
       {"--list", &o.list, "print the cases, or with --step the planned memory, and exit; needs no device"}});
  return options;
}

}  // namespace flatshard::bench
