#include "train/config/fields.h"

#include "text/data/mixture.h"
#include "text/images/resize.h"

namespace flatshard {
namespace {

// Sequences and tokens are bounded because a plan stores an entry per sequence of a step, and a batch indexes
// tokens with 32 bits.
constexpr double kMostSequences = 1 << 18, kMostTokens = INT32_MAX, kMostThreads = 1024, kMostSamples = 1e15;

constexpr Bounds at_least(double least) { return {.least = least}; }
constexpr Bounds within(double least, double most) { return {.least = least, .most = most}; }

Example example(const char* value) { return {value}; }

using OnResume::changes, OnResume::content, OnResume::moves_rate, OnResume::noted, OnResume::reorders,
    OnResume::silent;
ResumeRule fixed(const char* reason) { return {OnResume::fixed, reason}; }

// `by_default` is the rule of the lines that state none.
std::vector<Field> section(ResumeRule by_default, std::vector<Field> lines) {
  for (Field& line : lines)
    if (!line.on_resume) line.on_resume = by_default;
  return lines;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& f : families()) names.push_back(f.name);
  return names;
}

std::vector<Field> run_fields(RunConfig& run) {
  return {
      {"run.dir", &run.dir, "run folder: metrics, resolved config, report, checkpoints", silent,
       example("\"runs/first\"")},
      {"run.seed", &run.seed, "seed of all random numbers", at_least(0),
       fixed("which the order of the data depends on"), example("7")},
      {"run.device", &run.device, "compute device; auto takes a GPU if there is one", silent},
      {"run.cuda_graphs", &run.cuda_graphs,
       "replay each micro-step on a GPU as a CUDA graph; auto: on one rank, where nothing prevents it; true: "
       "also on several ranks over NCCL, and an error where something does",
       Spelling::or_flag, silent},
      {"run.attention", &run.attention,
       "kernels of attention on a GPU: auto takes those for its architecture, one_pass the same but on "
       "Hopper one kernel for the backward pass instead of two, sm_80 the ones that run on all, to compare; "
       "results depend on it",
       changes},
      {"run.products", &run.products,
       "kernels of matrix products on a GPU: own takes the project's where it supports a product of 16-bit "
       "matrices on Hopper, cublaslt takes cuBLASLt's, and auto does too until own is measured to be faster; "
       "results depend on it",
       changes},
      {"run.tuned_products", &run.tuned_products,
       "file of matrix-product algorithms timed on this kind of GPU, to which a run adds the shapes it "
       "lacks; results depend on it; empty = cuBLASLt's choice",
       changes, example("\"products.json\"")},
      {"run.balanced_routing", &run.balanced_routing,
       "balanced routing for benchmarks: training steps assign tokens to experts in turn and ignore the "
       "routers; the resulting weights are useless",
       changes},
      {"run.spare_multiprocessors", &run.spare_multiprocessors,
       "multiprocessors of a GPU that matrix products leave to NCCL, where it transfers in kernels and not "
       "on "
       "copy engines; results depend on it",
       within(0, 64), changes, example("16")},
      {"run.trace", &run.trace,
       "write trace.json, a timeline of all ranks for Perfetto, and overlap.svg, a picture of one step: true "
       "for the first 10 steps, \"100:110\" for steps 100 to 110; at most 10 MB",
       Spelling::or_flag, silent, example("\"100:110\"")},
      {"run.threads", &run.threads, "compute threads per rank; 0 = this rank's share of the processors",
       within(0, kMostThreads), silent, example("8")},
      {"run.hash_every", &run.hash_every, "steps between printed weight hashes; 0 = only at the end",
       at_least(0), silent, example("100")},
      {"run.resume", &run.resume,
       "checkpoint to resume from: \"latest\" or \"best\" in run.dir, \"auto\", or a path; same as --resume; "
       "empty = start fresh",
       silent, example("\"latest\"")},
  };
}

std::vector<Field> model_fields(Config& c) {
  ModelConfig& model = c.model;
  return {
      {"model.family", choice(&model.family, family_names()), "architecture family"},
      {"model.layers", &model.layers, "number of transformer blocks", at_least(0), example("12")},
      {"model.hidden", &model.hidden, "width of the residual stream", at_least(0), example("768")},
      {"model.heads", &model.heads, "query heads", at_least(0), example("12")},
      {"model.kv_heads", &model.kv_heads, "key/value heads; 0 = model.heads", at_least(0), example("4")},
      {"model.head_dim", &model.head_dim, "head dimension; 0 = hidden / heads", at_least(0), example("64")},
      {"model.ffn", &model.ffn, "MLP width; 0 = 4 x hidden", at_least(0), example("2048")},
      {"model.experts", &model.experts, "experts of each block, in families that have them", at_least(0),
       example("64")},
      {"model.experts_per_token", &model.experts_per_token, "experts that a token goes to", at_least(0),
       example("8")},
      {"model.expert_ffn", &model.expert_ffn, "width of an expert; 0 = model.ffn", at_least(0),
       example("1024")},
      {"model.shared_ffn", &model.shared_ffn,
       "width of the expert that all tokens share, in qwen2_moe and glm4_moe", at_least(0), example("5632")},
      {"model.norm_topk", &model.norm_topk, "divide the weights of a token's experts by their sum"},
      {"model.routed_scale", &model.routed_scale, "factor of the weights of experts, in glm4_moe",
       within(0, kMostFloat), example("2.5")},
      {"model.expert_groups", &model.expert_groups, "groups that experts are chosen from, in glm4_moe",
       at_least(1), example("8")},
      {"model.top_groups", &model.top_groups, "groups that a token's experts are chosen from", at_least(1),
       example("4")},
      {"model.swiglu_limit", &model.swiglu_limit, "bound of gate and up of experts, in gpt_oss", at_least(0),
       example("7")},
      {"model.dense_blocks", &model.dense_blocks, "indices of blocks with an MLP in place of experts",
       example("[0]")},
      {"model.vocab", &model.vocab, "vocabulary size", at_least(0), example("50304")},
      {"model.max_positions", &model.max_positions, "largest position; 0 = data.seq_len", at_least(0),
       example("4096")},
      {"model.tied", &model.tied, "tie the output head to the token embedding"},
      {"model.norm_eps", &model.norm_eps, "epsilon of the norms", within(0, kMostFloat), example("1e-5")},
      {"model.rope_theta", &model.rope_theta, "RoPE base frequency", at_least(1), example("500000")},
      {"model.window_rope_theta", &model.window_rope_theta,
       "RoPE base frequency of blocks with a window, which are not scaled; 0 = as all blocks", at_least(0),
       example("10000")},
      {"model.window", &model.window, "sliding-window size of attention; 0 = full attention", at_least(0),
       example("4096")},
      {"model.full_attention_every", &model.full_attention_every,
       "every n-th block has full attention in spite of model.window; 0 = none", at_least(0), example("2")},
      {"model.full_attention_blocks", &model.full_attention_blocks,
       "indices of the blocks with full attention, in place of every n-th", example("[5, 11]")},
      {"model.no_rope_every", &model.no_rope_every, "every n-th block has no RoPE; 0 = none", at_least(0),
       example("4")},
      {"model.no_rope_blocks", &model.no_rope_blocks,
       "indices of the blocks without RoPE, in place of every n-th", example("[3, 7]")},
      {"model.partial_rotary_factor", &model.partial_rotary_factor,
       "share of each head that is rotated, from its first element on", within(0, 1), example("0.5")},
      {"model.embedding_multiplier", &model.embedding_multiplier, "factor of the token embedding",
       within(kLeastFloat, kMostFloat), example("12")},
      {"model.residual_multiplier", &model.residual_multiplier,
       "factor of what attention and MLP add to the residual stream", within(kLeastFloat, kMostFloat),
       example("0.22")},
      {"model.attention_multiplier", &model.attention_multiplier,
       "factor of attention scores; 0 = 1 / sqrt(model.query_scalar)", within(0, kMostFloat),
       example("0.0078125")},
      {"model.logit_divisor", &model.logit_divisor, "the logits are divided by this",
       within(kLeastFloat, kMostFloat), example("8")},
      {"model.query_scalar", &model.query_scalar,
       "attention scores are divided by the square root of this; 0 = head dimension", at_least(0),
       example("256")},
      {"model.attention_softcap", &model.attention_softcap,
       "bound of attention scores, c tanh(score / c); 0 = none", within(0, kMostFloat), example("50")},
      {"model.logit_softcap", &model.logit_softcap, "bound of the logits, c tanh(logit / c); 0 = none",
       within(0, kMostFloat), example("30")},
      {"model.qk_norm", &model.qk_norm, "normalize q and k; per head, in olmo2 over all heads"},
      {"model.qkv_bias", &model.qkv_bias, "biases on q, k and v"},
      {"model.init_from", &c.init_from,
       "Hugging Face model folder, GGUF file or checkpoint (RUN/best, RUN/latest) with the initial weights; "
       "it decides "
       "all other model keys, except that model.vocab may be larger: new rows are the mean of the existing "
       "ones",
       noted, example("\"Llama-3.2-1B\"")},
      {"model.adapter", &c.adapter,
       "folder of a LoRA adapter, as PEFT writes it, or a checkpoint of one, to continue training; with "
       "lora.rank, the adapter is "
       "merged into the frozen weights instead",
       fixed("whose adapter it continues"), example("\"runs/first/latest\"")},
      {"model.pad_to_multiple_of", &c.pad_to_multiple_of, "round the vocabulary up to a multiple of this",
       within(1, INT32_MAX), example("64")},
      {"model.trainable", &c.trainable,
       "name patterns of the parameters to train (* matches any text); the others are frozen",
       fixed("and has moments of those parameters only"), example("[\"model.layers.*\"]")},
      {"model.rope_scaling.kind", &model.rope_scaling.kind, "RoPE scaling method"},
      {"model.rope_scaling.factor", &model.rope_scaling.factor, "RoPE scaling factor", at_least(1),
       example("8")},
      {"model.rope_scaling.low_freq_factor", &model.rope_scaling.low_freq_factor,
       "llama3: frequencies below this are fully scaled", example("1")},
      {"model.rope_scaling.high_freq_factor", &model.rope_scaling.high_freq_factor,
       "llama3: frequencies above this are not scaled", example("4")},
      {"model.rope_scaling.original_max_positions", &model.rope_scaling.original_max_positions,
       "llama3, yarn, longrope: context length before scaling", at_least(1), example("8192")},
      {"model.rope_scaling.beta_fast", &model.rope_scaling.beta_fast,
       "yarn: frequencies of more turns in the original context are not scaled", within(0, kMostFloat),
       example("32")},
      {"model.rope_scaling.beta_slow", &model.rope_scaling.beta_slow,
       "yarn: frequencies of fewer turns in the original context are fully scaled", within(0, kMostFloat),
       example("1")},
      {"model.rope_scaling.truncate", &model.rope_scaling.truncate,
       "yarn: round the range of interpolated frequencies to whole indices"},
      {"model.rope_scaling.mscale", &model.rope_scaling.mscale,
       "yarn: scale of the attention factor, with mscale_all_dim; 0 = none", within(0, kMostFloat),
       example("1")},
      {"model.rope_scaling.mscale_all_dim", &model.rope_scaling.mscale_all_dim,
       "yarn: divisor of the attention factor, with mscale; 0 = none", within(0, kMostFloat), example("1")},
      {"model.rope_scaling.attention_factor", &model.rope_scaling.attention_factor,
       "yarn, longrope: factor of cosines and sines; 0 = by the method's formula", within(0, kMostFloat),
       example("1.2")},
      {"model.rope_scaling.short_factor", &model.rope_scaling.short_factor,
       "longrope: divisors of the frequencies if data.seq_len is at most original_max_positions",
       example("[1.0, 1.05]")},
      {"model.rope_scaling.long_factor", &model.rope_scaling.long_factor,
       "longrope: divisors of the frequencies for longer sequences", example("[1.0, 4.2]")},
  };
}

std::vector<Field> lora_fields(LoraConfig& lora) {
  return {
      {"lora.rank", &lora.rank, "rank of the adapters; 0 = none, the model itself is trained",
       within(0, kMostLoraRank), example("16")},
      {"lora.alpha", &lora.alpha, "scale of an adapter's update, divided by its rank",
       within(kLeastFloat, kMostFloat), example("32")},
      {"lora.dropout", &lora.dropout, "probability of dropping an element of an adapter's input",
       within(0, 0.99), example("0.05")},
      {"lora.targets", &lora.targets,
       "layers with an adapter: \"all-linear\", a list of paths or their ends, or a regular expression for "
       "whole paths",
       example("[\"q_proj\", \"v_proj\"]")},
      {"lora.exclude", &lora.exclude, "layers without one, as a list or a regular expression",
       example("[\"lm_head\"]")},
      {"lora.layers", &lora.layers, "indices of the blocks with adapters; empty = all", at_least(0),
       example("[10, 11]")},
      {"lora.rank_pattern", &lora.rank_pattern,
       "ranks of single layers, by regular expressions for the end of a path", within(1, kMostLoraRank),
       example("{\"q_proj\" = 32}")},
      {"lora.alpha_pattern", &lora.alpha_pattern,
       "alphas of single layers, by regular expressions for the end of a path",
       within(kLeastFloat, kMostFloat), example("{\"q_proj\" = 64}")},
      {"lora.rslora", &lora.rslora, "divide alpha by the square root of the rank"},
      {"lora.init", &lora.init,
       "initial values of the A factors, with B zero; adapter: both from model.adapter"},
      {"lora.bias", &lora.bias, "biases to train"},
      {"lora.save_modules", &lora.save_modules,
       "modules to train in full and to save with the adapters, by paths or their ends",
       example("[\"lm_head\"]")},
  };
}

std::vector<Field> quant_fields(QuantConfig& quant) {
  return {
      {"quant.base", choice(&quant.base, "none"),
       "4-bit format of the blocks' frozen linear layers under adapters", example("\"nf4\"")},
      {"quant.block", &quant.block, "elements that share a scale: a power of two",
       within(kSmallestFourBitBlock, kLargestFourBitBlock), example("64")},
      {"quant.double", &quant.nested, "quantize the scales too, to 8 bits"},
      {"quant.compute", choice(&quant.compute, "auto"),
       "dtype that 4-bit weights are multiplied in; auto = precision.compute", example("\"bf16\"")},
      {"quant.skip", &quant.skip,
       "linear layers that are not quantized, by their names or those of modules around them",
       example("[\"lm_head\"]")},
      {"quant.upcast_norms", &quant.fp32_norms, "keep the frozen parameters of norms in fp32"},
  };
}

std::vector<Field> data_fields(DataConfig& data) {
  return {
      {"data.train", &data.train,
       "file to train on: tokens made by prepare, or text or JSON (.txt, .jsonl, .json, also .gz or .zst), "
       "or a Parquet or Arrow table, whose tokens are made once and kept beside it, in .flatshard; or "
       "several files, [\"a.jsonl\", \"b.jsonl\"] or {web = \"a.jsonl\", code = \"b.jsonl\"}, each "
       "shuffled and repeated by itself",
       content, example("\"chats.jsonl\"")},
      {"data.weights", &data.weights,
       "of several files, how many sequences each supplies, relative to the others; an epoch has as many as "
       "all files together; empty = by their sizes, so that it has every sequence once",
       within(kLeastWeight, kMostWeight), changes, example("[3, 1]")},
      {"data.eval", &data.eval,
       "file to evaluate on, of the same kinds; or several, in the same form, each evaluated by itself: "
       "eval_loss, which decides on the best checkpoint, is the mean of their losses; empty = no evaluation",
       content, example("\"held-out.jsonl\"")},
      {"data.max_samples", &data.max_samples,
       "use only the first so many samples of data.train, and of data.eval; 0 = all", within(0, kMostSamples),
       moves_rate, example("1000")},
      {"data.tokenizer", &data.tokenizer,
       "folder of the tokenizer, for text and JSON lines, and for the model that is saved; empty = that of "
       "model.init_from, or, without one, bytes",
       fixed("and its embeddings are of that tokenizer"), example("\"Llama-3.2-1B\"")},
      {"data.chat_template", &data.chat_template,
       "chat template of conversations: a built-in name or a file; empty = that of the tokenizer's folder",
       moves_rate, example("\"chatml\"")},
      {"data.date", &data.date,
       "date that a chat template prints, as YYYY-MM-DD, if it prints one; empty = the day on which the run "
       "begins, which its config.toml and checkpoints record",
       moves_rate, example("\"2026-07-01\"")},
      {"data.text_field", &data.text_field, "field of JSON lines, or column, that holds the document",
       moves_rate, example("\"content\"")},
      {"data.columns", &data.columns, "columns to read of Parquet and Arrow tables; empty = all", moves_rate,
       example("[\"messages\"]")},
      {"data.train_on", &data.train_on,
       "trained part of conversations: the assistant's turns, the last of them, or all tokens", moves_rate},
      {"data.image_longest_edge", &data.image_longest_edge,
       "longest side of images in pixels, or side of the square whose area bounds those of Qwen's models; "
       "fewer pixels are fewer patches and tokens; 0 = that of the tokenizer's folder",
       within(0, kMaxImageSide), moves_rate, example("980")},
      {"data.seq_len", &data.seq_len, "tokens per sequence", within(0, kMostTokens), reorders,
       example("2048")},
      {"data.vocab", &data.vocab,
       "vocabulary size that token files must have; 0 = from three quarters of model.vocab up to all of it",
       within(0, INT32_MAX), noted, example("50257")},
      {"data.packing", &data.packing,
       "how documents become sequences: windows of the file in which documents attend to each other "
       "(wrapped) or do not (documents), whole documents packed tightly, longer ones truncated (best_fit) or "
       "split (best_fit_split), or one document per sequence (none)",
       reorders},
      {"data.truncation", &data.truncation,
       "which tokens of a document longer than data.seq_len best_fit and none use", reorders},
      {"data.padding", &data.padding, "where best_fit and none pad sequences that documents do not fill",
       moves_rate},
      {"data.max_patches", &data.max_patches,
       "patches of images per sequence: best_fit and none put no more into one; 0 = those of the largest "
       "image of the model",
       within(0, kMostTokens), reorders, example("4096")},
      {"data.shuffle", &data.shuffle, "shuffle the sequences in every epoch", reorders},
  };
}

std::vector<Field> train_fields(TrainConfig& train, AnswerLoss& loss) {
  return {
      {"train.loss", &loss.kind,
       "what is learned: sft: the answers, or all tokens; dpo, ipo, orpo: to prefer the chosen answers of "
       "pairs to the rejected ones (records with prompt, chosen and rejected); kto: from answers with a "
       "label; policy: from rollouts with advantages, by clipped ratios, as GRPO and DAPO do",
       changes},
      {"train.steps", &train.steps, "optimizer steps; give this or train.epochs", within(0, kMostSteps),
       moves_rate, example("1000")},
      {"train.epochs", &train.epochs, "passes over the data; give this or train.steps", at_least(0),
       moves_rate, example("3")},
      {"train.total_batch_size", &train.total_batch_size, "sequences per optimizer step, over all ranks",
       within(0, kMostSequences), moves_rate, example("64")},
      {"train.batch_size_per_device", &train.batch_size_per_device, "sequences per micro-batch of one rank",
       within(1, kMostSequences), noted, example("4")},
      {"train.lane_size", &train.lane_size,
       "sequences per lane, the unit of summation: results depend on it, but not on how lanes are dealt to "
       "ranks; larger than batch_size_per_device: summed in place over micro-steps, with one buffer. 0 = "
       "batch_size_per_device; on one rank total_batch_size",
       within(0, kMostSequences), silent, example("2")},
      {"train.eval_batch_size_per_device", &train.eval_batch_size_per_device,
       "sequences per evaluation batch of one rank; 0 = batch_size_per_device", within(0, kMostSequences),
       noted, example("8")},
      {"train.head_chunk", &train.head_chunk,
       "tokens whose logits exist at once: the output head and the loss are computed chunk by chunk; a "
       "smaller chunk takes less memory and more time, and rounds differently",
       within(1, kMostTokens), noted, example("2048")},
      {"train.router_aux_loss", &train.router_aux_loss,
       "weight of the loss that balances the experts of a mixture, the mean over micro-batches of E sum f P, "
       "as in transformers; without it that of the model's config.json; 0 = none",
       within(0, kMostFloat), example("0.001")},
      {"train.router_z_loss", &train.router_z_loss,
       "weight of the loss that keeps router logits small, the mean of ln^2 sum exp(logits); 0 = none",
       within(0, kMostFloat), example("0.001")},
      {"train.router_bias_rate", &train.router_bias_rate,
       "how far a step moves the bias of each expert towards even loads, in families that choose experts by "
       "sigmoid; 0 = biases stay",
       within(0, kMostFloat), example("0.001")},
      {"train.tile", &train.tile,
       "tokens of a block that norms and products compute at once; their values last for one tile and are "
       "computed again in the backward pass, so the longest sequence that fits is far longer; rounds "
       "differently; 0 = all",
       within(0, kMostTokens), noted, example("8192")},
      {"train.recompute", &train.recompute,
       "activation checkpointing: true keeps only the inputs of each block and recomputes the rest in the "
       "backward pass; \"except_attention\" keeps the output of attention too; \"selective\" recomputes only "
       "norms and the activations of MLPs; same results",
       Spelling::or_flag, noted},
      {"train.offload_activations", &train.offload_activations,
       "keep the inputs of blocks, and what train.recompute keeps besides, in host memory between the "
       "forward "
       "and the backward pass; needs train.recompute = true or \"except_attention\"; same results",
       noted},
      {"train.eval_every", &train.eval_every,
       "steps between evaluations; below 1: a fraction of the run; 0 = none, but for train.eval_each_epoch. "
       "With either, checkpoints that are saved after certain steps are evaluated too",
       within(0, kMostSteps), changes, example("100")},
      {"train.eval_each_epoch", &train.eval_each_epoch, "evaluate at the end of every epoch too", changes},
      {"train.stop_after_no_improvement", &train.stop_after_no_improvement,
       "early stopping: end the run after so many evaluations in a row without a new lowest evaluation loss; "
       "0 = never",
       within(0, kMostSteps), changes, example("3")},
      {"train.skip_nonfinite", &train.skip_nonfinite,
       "skip a step with a NaN or infinite gradient instead of stopping", changes},
  };
}

std::vector<Field> preference_fields(AnswerLoss& loss) {
  return {
      {"preference.beta", &loss.beta,
       "of dpo, ipo and kto, how much a model that departs from its reference is held back; of orpo, the "
       "weight of the odds",
       within(kLeastFloat, kMostFloat), example("0.1")},
      {"preference.label_smoothing", &loss.label_smoothing,
       "of dpo, the share of pairs whose answers may be the wrong way round", within(0, 0.5), example("0.1")},
      {"preference.reference_free", &loss.reference_free,
       "of dpo, compare the answers' probabilities without those of the weights that the run starts from"},
      {"preference.desirable_weight", &loss.desirable_weight, "of kto, weight of the losses of good answers",
       within(0, kMostFloat), example("1")},
      {"preference.undesirable_weight", &loss.undesirable_weight, "of kto, weight of those of bad answers",
       within(0, kMostFloat), example("1.33")},
      {"preference.sft_weight", &loss.sft_weight,
       "of dpo and ipo, add so many times the mean loss of the chosen answers' tokens", within(0, kMostFloat),
       example("0.2")},
  };
}

std::vector<Field> policy_fields(AnswerLoss& loss) {
  return {
      {"policy.clip_low", &loss.clip_low, "a ratio below 1 less this no longer lowers a probability",
       within(0, 1), example("0.2")},
      {"policy.clip_high", &loss.clip_high, "a ratio above 1 plus this no longer raises a probability",
       within(0, kMostFloat), example("0.28")},
      {"policy.kl_weight", &loss.kl_weight,
       "weight of the divergence from the weights that the run starts from; 0 = none", within(0, kMostFloat),
       example("0.001")},
      {"policy.ratio", &loss.ratio,
       "the probability now by that of the sampling: of each token, or of a whole answer, by the geometric "
       "mean"},
      {"policy.mean", &loss.mean,
       "over all tokens of a step, as DAPO; or over its answers, each the mean of its tokens, as GRPO"},
  };
}

Choice optimizer_choice(OptimizerChoice* member) {
  std::vector<OptimizerChoice> values;
  for (const std::string& name : optimizer_names()) values.push_back(*optimizer_named(name));
  return choice(member, optimizer_names(), values);
}

// "update rule and its state; adamw: AdamW with fp32 moments; ..."
std::string optimizer_help() {
  std::string text = "update rule and its state";
  for (const OptimizerKind& kind : optimizer_kinds()) text += str("; ", kind.name, ": ", kind.about);
  return text + "; paged: the state lives in host memory and visits the device for the update";
}

std::vector<Field> optimizer_fields(OptimizerConfig& optimizer) {
  return {
      {"optimizer.kind", optimizer_choice(&optimizer.kind), optimizer_help(),
       fixed("whose moments it has in another form")},
      {"optimizer.lr", &optimizer.lr, "peak learning rate", within(0, kMostFloat), moves_rate,
       example("2e-4")},
      {"optimizer.betas", &optimizer.betas,
       "decay rates of the moments; the default is that of optimizer.kind", within(0, 1),
       example("[0.9, 0.95]")},
      {"optimizer.eps", &optimizer.eps, "epsilon of AdamW", within(kLeastFloat, kMostFloat), example("1e-8")},
      {"optimizer.weight_decay", &optimizer.weight_decay, "decoupled weight decay", within(0, kMostFloat),
       changes, example("0.1")},
      {"optimizer.grad_clip", &optimizer.grad_clip, "maximum global gradient norm; 0 = no clipping",
       within(0, kMostFloat), changes, example("1")},
      {"optimizer.lr_scaling", &optimizer.lr_scaling,
       "scale lr by k or sqrt(k), where k = total batch size / base_batch_size", moves_rate},
      {"optimizer.base_batch_size", &optimizer.base_batch_size, "batch size that optimizer.lr was tuned for",
       at_least(0), moves_rate, example("256")},
      {"optimizer.no_decay", &optimizer.no_decay,
       "parameters without weight decay: kinds (norm, bias, embed) and name patterns", changes,
       example("[\"norm\", \"bias\"]")},
  };
}

std::vector<Field> schedule_fields(ScheduleConfig& schedule) {
  return {
      {"schedule.kind", &schedule.kind, "learning-rate schedule"},
      {"schedule.warmup_steps", &schedule.warmup_steps, "warm-up steps", at_least(0), example("100")},
      {"schedule.warmup_ratio", &schedule.warmup_ratio, "warm-up as a fraction of the run", within(0, 1),
       example("0.03")},
      {"schedule.warmup_start", &schedule.warmup_start, "warm up from zero, or start at the peak rate (one)"},
      {"schedule.min_lr_factor", &schedule.min_lr_factor, "final learning rate as a fraction of the peak",
       within(0, 1), example("0.1")},
      {"schedule.start_step", &schedule.start_step,
       "step that the schedule counts from, for a run that resumes there: warm-up and decay cover the "
       "remaining steps",
       within(0, kMostSteps), example("1000")},
      {"schedule.decay_ratio", &schedule.decay_ratio, "wsd: fraction of the run in which the rate decays",
       within(0, 1), example("0.2")},
  };
}

std::vector<Field> precision_fields(PrecisionConfig& precision) {
  return {
      {"precision.compute", &precision.compute,
       "dtype of weights and activations in computation; master weights are fp32"},
      {"precision.reduce", choice(&precision.reduce, {Precision::fp32, Precision::bf16}),
       "dtype of gradients in communication"},
      {"precision.loss_scale", &precision.loss_scale, "fp16 loss scale: dynamic, or a number",
       Spelling::or_number, example("\"dynamic\"")},
      {"precision.tf32", &precision.tf32, "use TF32 tensor cores for fp32 matrix products on a GPU"},
  };
}

std::vector<Field> parallel_fields(ParallelConfig& parallel) {
  return {
      {"parallel.strategy", &parallel.strategy,
       "what is sharded over the ranks: nothing (no_shard), the optimizer (zero1), gradients too "
       "(shard_grad_op), parameters too (full_shard), or the same within groups of ranks (hybrid)"},
      {"parallel.group_size", &parallel.group_size,
       "hybrid: ranks per group; each group holds one copy of the model", within(0, INT32_MAX), example("8")},
      {"parallel.wrap", &parallel.wrap,
       "wrap granularity, i.e. what one communication unit holds: a block, attention and MLP apart, modules "
       "by name pattern, modules by size, or the whole model"},
      {"parallel.wrap_patterns", &parallel.wrap_patterns,
       "pattern: modules that become units, such as model.layers.*.mlp; the outermost match wins",
       example("[\"model.layers.*.mlp\"]")},
      {"parallel.wrap_size", &parallel.wrap_size,
       "size: minimum parameters of a unit; the innermost module of that size wins", at_least(0),
       example("1000000")},
      {"parallel.replicate", &parallel.replicate,
       "name patterns of parameters that stay unsharded on every rank", example("[\"*norm*\"]")},
      {"parallel.offload", &parallel.offload,
       "keep shards, gradients and optimizer states in host memory and update them there; full_shard and "
       "hybrid"},
      {"parallel.keep_root_gathered", &parallel.keep_root_gathered,
       "keep the root unit (embedding, last norm, head) gathered for the whole step"},
      {"parallel.forward_prefetch", &parallel.forward_prefetch,
       "gather the parameters of the next layers during the forward pass of a layer"},
      {"parallel.backward_prefetch", &parallel.backward_prefetch,
       "when to gather the next layer's parameters: before the backward pass of a layer (pre), after it "
       "(post), or on demand (none)"},
      {"parallel.depth", &parallel.depth, "layers to prefetch ahead", within(1, 64), example("2")},
      {"parallel.reduction", &parallel.reduction,
       "gradient summation: exact (same bits on any number of ranks), sequential (micro-step by micro-step, "
       "less memory), or native (the communication library's)"},
      {"parallel.levels", &parallel.levels,
       "exchange in two levels, among the ranks of a host and then between hosts, or in one: the same bits; "
       "auto: two for ranks on several hosts, if each host has the same power of two of them"},
      {"parallel.host_ranks", &parallel.host_ranks,
       "consecutive ranks that count as one host; 0 = as the hosts are found, or in a plan for GPUs 8",
       within(0, 1 << 20), example("8")},
      {"parallel.accumulation", &parallel.accumulation,
       "reduce gradients after every micro-step (sharded), or accumulate them unsharded and reduce once "
       "(no_sync)"},
      {"parallel.transport", &parallel.transport,
       "tensor transport; auto: NCCL if every rank has its own GPU, else MPI"},
      {"parallel.sync_module_states", &parallel.sync_module_states,
       "rank 0 initializes all parameters and sends each rank its shard; otherwise each rank initializes its "
       "own, with equal results"},
      {"parallel.cpu_ram_efficient_loading", &parallel.cpu_ram_efficient_loading,
       "only rank 0 reads model.init_from, one unit at a time; otherwise each rank reads its own shard"},
      {"parallel.expert_ranks", &parallel.expert_ranks,
       "consecutive ranks that divide the experts of each block among them (expert parallelism): tokens are "
       "sent to experts, and each rank gathers and trains only its own; 1 = every rank gathers all experts",
       within(1, 256), example("8")},
      {"parallel.stages", &parallel.stages,
       "pipeline stages: groups of ranks, each with a range of the model's layers; the ranks of a stage "
       "shard as parallel.strategy says",
       within(1, 256), example("4")},
      {"parallel.schedule", &parallel.schedule,
       "order of the micro-batches in a pipeline: 1f1b (forward and backward passes alternate), interleaved "
       "(the same, with several ranges of layers per stage), gpipe (all forward passes first), or sequential "
       "(one micro-batch at a time)"},
      {"parallel.chunks", &parallel.chunks, "interleaved: ranges of layers per pipeline stage", within(2, 64),
       example("2")},
      {"parallel.device_map", &parallel.device_map,
       "layers of each pipeline stage: auto (equal work), balanced or balanced_low_0 (by size, as in Hugging "
       "Face Accelerate), sequential:SIZE (stages are filled in order, each with SIZE of parameters in 16 "
       "bits, such as 20GB), or a table from prefixes of parameter names to stages",
       example("\"balanced\"")},
      {"parallel.bandwidth_gbps", &parallel.bandwidth_gbps,
       "receive bandwidth of a rank in GB/s, used to estimate overlap; 0 = measure at start", within(0, 1e5),
       example("40")},
      {"parallel.timeout_seconds", &parallel.timeout_seconds,
       "seconds a collective may take before the run ends with a report of where each rank waits",
       within(1, INT32_MAX), example("600")},
  };
}

std::vector<Field> checkpoint_fields(CheckpointConfig& checkpoint) {
  return {
      {"checkpoint.save_every", &checkpoint.save_every,
       "steps between checkpoints, plus one at the end; below 1: a fraction of the run; or a time such as "
       "30min, 2h or 90s; 0 = never",
       Spelling::or_number, example("\"30min\"")},
      {"checkpoint.save_each_epoch", &checkpoint.save_each_epoch, "save at the end of every epoch too"},
      {"checkpoint.best_every", &checkpoint.best_every,
       "save a checkpoint too when an evaluation has the lowest loss of all that are saved, at most this "
       "often: steps or a time, as for save_every; auto = so often that it takes at most 5% of the time, "
       "with train.stop_after_no_improvement every time, and never if save_every is 0; 0 = never",
       Spelling::or_number, example("500")},
      {"checkpoint.keep", &checkpoint.keep,
       "checkpoints to keep, besides the one with the lowest evaluation loss; 0 = all", at_least(0),
       example("3")},
      {"checkpoint.async", &checkpoint.async,
       "write from a copy in host memory while training continues; otherwise training waits"},
      {"checkpoint.on_sigterm", &checkpoint.on_sigterm,
       "save a checkpoint when a signal (SIGTERM, SIGINT, SIGUSR1, SIGHUP) ends the run"},
      {"checkpoint.on_error", &checkpoint.on_error,
       "if a checkpoint cannot be written: stop the run, or continue with a warning"},
      {"checkpoint.shard_size", &checkpoint.shard_size,
       "maximum size of one weights file, e.g. 5GB or 200MB; a larger model is split, with an index",
       Spelling::or_number, example("\"5GB\"")},
  };
}

std::vector<Field> log_fields(LogConfig& log) {
  return {
      {"log.every", &log.every, "steps between progress lines", at_least(1), example("10")},
      {"log.step1", &log.step1,
       "after step 1, print every rank's memory and first row (step1.txt has them in any case)"},
      {"log.tensorboard", &log.tensorboard,
       "write the metrics to event files for TensorBoard, in tensorboard/ of the run folder"},
      {"log.samples", &log.samples,
       "file of prompts that the model continues by its likeliest tokens, at every evaluation and, with "
       "model.init_from, before the first step: a prompt in each line, or in .jsonl files records with "
       "\"prompt\" or \"messages\"; the texts are in samples.jsonl and in the report; empty = none",
       example("\"prompts.txt\"")},
      {"log.sample_length", &log.sample_length,
       "tokens of a sample, its prompt included; 0 = 256, or the model's positions if these are fewer",
       within(0, kMostTokens), example("128")},
  };
}

}  // namespace

std::vector<Field> fields(Config& c) {
  std::vector<Field> all;
  for (const std::vector<Field>& lines :
       {section(OnResume::fixed, run_fields(c.run)),
        section(fixed("and its tensors are of that model"), model_fields(c)),
        section(fixed("and its adapters are of that kind"), lora_fields(c.lora)),
        section(fixed("and its adapters were trained on those weights"), quant_fields(c.quant)),
        section(OnResume::fixed, data_fields(c.data)),
        section(OnResume::fixed, train_fields(c.train, c.loss)), section(changes, preference_fields(c.loss)),
        section(changes, policy_fields(c.loss)),
        section(fixed("which its moments depend on"), optimizer_fields(c.optimizer)),
        section(moves_rate, schedule_fields(c.schedule)),
        section(fixed("which its loss scale and its rounding depend on"), precision_fields(c.precision)),
        section(noted, parallel_fields(c.parallel)), section(noted, checkpoint_fields(c.checkpoint)),
        section(silent, log_fields(c.log))})
    all.insert(all.end(), lines.begin(), lines.end());
  return all;
}

}  // namespace flatshard
