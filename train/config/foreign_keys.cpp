#include "train/config/foreign_keys.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <sstream>

namespace flatshard {
namespace {

using Values = std::vector<ForeignValue>;

Values with(Values first, const Values& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

// The file is long because of this table: a row for each setting of a dozen trainers.
// clang-format off
std::vector<ForeignKey> rows() {
  // Values of several rows.
  const Values kNothing{{"", ""}}, kOff{{"false 0", ""}},
      kDtypes{{"*bf16* *bfloat16*", "bf16"}, {"*fp16* *float16*", "fp16"}, {"*fp32* *float32*", "fp32"}},
      kStrategies{{"full_shard 1", "full_shard"}, {"shard_grad_op 2", "shard_grad_op"}, {"no_shard 3", "no_shard"},
                  {"hybrid_shard 4", "hybrid"}};
  // Texts of several rows.
  static constexpr char
      kNoOtherMemory[] = "for less memory take lora.rank, optimizer.kind = \"adamw8bit\" or parallel.offload = true",
      kFile[] = "a .jsonl, .json or .txt file, or tokens made by prepare; or a list of such files",
      kSplits[] = "data.train and data.eval are files: write the records of the split into one",
      kFields[] = "conversations are \"messages\" with role and content, or \"conversations\" with from and value",
      kOwnReference[] = "the reference is the weights that the run starts from; it is computed once and kept beside the tokens",
      kNoDropout[] = "models are trained without dropout; adapters have lora.dropout",
      kNoOtherAdapters[] = "adapters are LoRA, with lora.rslora; DoRA and others do not exist",
      kNoEightBit[] = "there are no 8-bit weights; quant.base = \"nf4\" stores 4-bit ones",
      kLauncher[] = "the launcher starts the ranks: train my.toml --ranks 4, or srun",
      kFolderDecides[] = "the folder model.init_from decides",
      kNoClasses[] = "there are no classes to name; model.family is the architecture";
  using enum OtherValues;
  using enum ForeignRule;
  return {
    // Batch and length of the run.
    {"gradient_accumulation_steps grad_accum_steps accumulate_grad_batches", "train.total_batch_size", refused, {},
     "ranks x batch_size_per_device x gradient_accumulation_steps", accumulation},
    {"train_batch_size global_batch_size", "train.total_batch_size"},
    {"per_device_train_batch_size per_gpu_train_batch_size train_micro_batch_size_per_gpu micro_batch_size local_batch_size "
     "pipeline_parallel_microbatch_size batch_size", "train.batch_size_per_device"},
    {"auto_find_batch_size", "", ignored, {}, "train --plan --for says which train.batch_size_per_device fits on a GPU"},
    {"per_device_eval_batch_size per_gpu_eval_batch_size eval_batch_size", "train.eval_batch_size_per_device"},
    {"max_steps max_iters train_iters num_iterations num_steps max_train_steps", "train.steps", copied,
     {{"-1 0", "", "no limit on steps"}}},
    {"max_steps_per_epoch", "train.steps", refused, {{"-1 0", "", "no limit on steps"}}, "epochs x max_steps_per_epoch"},
    {"num_train_epochs num_epochs max_epochs", "train.epochs"},
    {"gradient_checkpointing enable_activation_checkpointing activation_checkpointing fsdp_activation_checkpointing",
     "train.recompute"},
    {"activation_checkpoint.mode recompute_granularity", "train.recompute", refused,
     {{"full", "true"}, {"none", "false"}, {"selective", "selective"}}, "the last recomputes norms and activations of MLPs"},
    {"selective_ac_option", "train.recompute", refused, {}, "selective: norms and activations of MLPs; or true: every block"},
    {"gradient_checkpointing_kwargs use_reentrant activation_checkpointing_kwargs ac_mode ac_option", "", ignored, {},
     "train.recompute sets what is recomputed, and has no options"},
    {"activation_offloading enable_activation_offloading", "train.offload_activations", refused,
     {{"true 1 legacy", "true"}, {"false 0", "false"}}, "with train.recompute, which says what is stored"},
    {"tiled_mlp tiled_mlp_num_shards tiled_mlp_use_original_mlp", "train.tile", refused, {{"false 0", ""}},
     "the tokens of a tile, such as 8192: all norms and products of a block then take so many at once"},
    {"use_cache", "", ignored, {}, "training keeps no keys and values of earlier tokens"},
    {"torch_empty_cache_steps gc_steps max_memory gpu_memory_limit", "", ignored, {},
     "memory is planned before the run and allocated once"},
    // Evaluation.
    {"eval_steps eval_interval val_loss_every run_val_every_n_steps validation.freq", "train.eval_every", copied, {}, "", steps},
    {"evals_per_epoch", "train.eval_every", refused, {}, "1 / (epochs x evals_per_epoch), a fraction of the run", per_epoch},
    {"eval_strategy evaluation_strategy", "train.eval_every", refused,
     {{"no false", "0"}, {"epoch", "true", "", "train.eval_each_epoch"}, {"steps", "", "eval_steps says how often"}},
     "otherwise the number of steps", strategy},
    {"early_stopping_patience", "train.stop_after_no_improvement"},
    {"early_stopping_threshold", "", refused, kOff, "train.stop_after_no_improvement counts any lower loss as an improvement"},
    {"eval_accumulation_steps", "", ignored, {}, "an evaluation keeps sums, not logits"},
    {"eval_delay", "", ignored, {}, "evaluations are train.eval_every steps apart from the start of the run"},
    {"eval_on_start", "", ignored, {}, "\"evaluate loss\" computes the loss of a model before training"},
    {"eval_iters prediction_loss_only eval_do_concat_batches eval_use_gather_object include_for_metrics batch_eval_metrics "
     "do_bench_eval", "", ignored, {}, "an evaluation computes losses, for all of data.eval"},
    {"eval_table_size eval_max_new_tokens generate_during_eval max_new_tokens do_sample temperature top_p num_beams do_predict",
     "", ignored, {}, "generate and evaluate have options for this; train has none"},
    {"do_train do_eval", "", ignored, {}, "train trains, and every train.eval_every steps evaluates on data.eval if that is set"},
    {"predict_with_generate", "", ignored, {}, "\"evaluate similarity\" generates answers and scores them"},
    {"metric_for_best_model greater_is_better", "", ignored, {},
     "checkpoint.best_every saves the lowest evaluation loss, and \"ckpt best\" names it"},
    // Optimizer and schedule.
    {"learning_rate", "optimizer.lr"},
    {"optim optimizer optimizer.name optimizer.type optimizer._component_ optimizer_type", "optimizer.kind", copied, {}, "",
     optimizer},
    {"optimizer.fused", "", ignored, {}, "the update of a unit is one kernel already"},
    {"adafactor use_galore use_badam use_apollo optim_target_modules", "", refused, kOff, kNoOtherMemory},
    {"optimizer_in_bwd", "", ignored, {}, kNoOtherMemory},
    {"optim_args", "", refused, kNothing, "optimizer.lr, betas, eps and weight_decay are keys of their own"},
    {"momentum", "optimizer.betas", refused, {}, "[momentum, 0.999]"},
    {"adam_beta1 adam_beta2 beta1 beta2", "optimizer.betas", refused, {}, "[beta1, beta2]", beta},
    {"adam_epsilon", "optimizer.eps"},
    {"max_grad_norm max_norm gradient_clipping gradient_clip_val clip_grad clip_grad_norm", "optimizer.grad_clip"},
    {"lr_scheduler_type lr_scheduler lr_scheduler._component_ scheduler lr_decay_style decay_type scheduler.type",
     "schedule.kind", refused,
     {{"*restarts* *inverse*", nullptr}, {"*linear*", "linear"}, {"*constant*", "constant"}, {"*cosine*", "cosine"},
      {"wsd *warmup_stable_decay*", "wsd"}}, "with schedule.warmup_steps or schedule.warmup_ratio"},
    {"decay_lr", "schedule.kind", refused, {{"true", "cosine"}, {"false", "constant"}}},
    {"lr_scheduler_kwargs", "schedule.min_lr_factor", refused, {}, "its min_lr_rate; schedule.decay_ratio for the decay of wsd"},
    {"num_decay_steps", "schedule.decay_ratio", refused, {}, "num_decay_steps / steps"},
    {"lr_decay_iters lr_decay_steps", "", refused, kNothing, "the schedule always ends with the run"},
    {"warmup_steps", "schedule.warmup_steps", copied, {}, "", warmup},
    {"warmup_iters warmup_iterations warmup_num_steps num_warmup_steps lr_warmup_iters", "schedule.warmup_steps"},
    {"lr_warmup_fraction", "schedule.warmup_ratio"},
    {"min_lr", "schedule.min_lr_factor", refused, {}, "min_lr / learning_rate"},
    {"min_lr_rate min_lr_ratio cosine_min_lr_ratio learning_rate_decay_frac", "schedule.min_lr_factor"},
    {"label_smoothing_factor", "", refused, kOff, "the loss is the cross-entropy of the next token, without smoothing"},
    {"neftune_noise_alpha", "", refused, kOff, "embeddings are trained without noise"},
    {"average_tokens_across_devices", "", refused, {{"true", ""}},
     "the loss is always the mean over the trained tokens of all ranks"},
    {"split_batches", "", refused, kOff, "a batch per device is that of one rank"},
    {"loss_watchdog_*", "", ignored, {}, "a run stops at a loss that is not finite"},
    {"router_aux_loss_coef", "train.router_aux_loss"},
    {"router_z_loss_coef moe_z_loss_coeff", "train.router_z_loss"},
    {"moe_router_bias_update_rate", "train.router_bias_rate"},
    {"moe_aux_loss_coeff", "train.router_aux_loss", refused, kOff, "moe_aux_loss_coeff / k for each block, instead of all blocks together"},
    // Precision.
    {"bf16 bf16.enabled bfloat16", "precision.compute", refused, {{"true auto full", "bf16"}, {"false", "fp32"}}, "", precision},
    {"fp16 float16 fp16.enabled", "precision.compute", refused, {{"true auto full", "fp16"}, {"false", "fp32"}}, "", precision},
    {"mixed_precision mixed_precision_param", "precision.compute", refused, with({{"no false", "fp32"}}, kDtypes), "", precision},
    {"dtype torch_dtype", "precision.compute", refused,
     with(kDtypes, {{"auto", "", "master weights are fp32, whatever the dtype of the folder"}}), "", precision},
    {"mixed_precision_reduce", "precision.reduce"},
    {"initial_scale_power", "precision.loss_scale", refused, {}, "\"dynamic\""},
    {"pure_bf16", "", ignored, {}, "precision.compute = \"bf16\" computes in bf16; master weights are fp32"},
    {"bf16_full_eval fp16_full_eval half_precision_backend fp16_opt_level", "", ignored, {},
     "precision.compute is the only setting, for evaluations too"},
    {"float8. fp8", "", refused, kOff, "there is no fp8; precision.compute is \"bf16\", \"fp16\" or \"fp32\""},
    // Files and reports.
    {"output_dir out_dir output_log_dir dump_folder checkpoint.folder", "run.dir"},
    {"run_name", "run.dir", paths, {}, "a folder such as runs/NAME"},
    {"overwrite_output_dir", "", ignored, {}, "start with --overwrite to replace the results in run.dir"},
    {"data_seed", "run.seed", refused, {}, "one seed for all random numbers"},
    {"full_determinism deterministic", "", ignored, {}, "results are always the same, bit for bit"},
    {"load_best_model_at_end", "checkpoint.best_every", refused, {},
     "\"auto\" saves the best evaluation, and \"ckpt merge\" takes it"},
    {"use_cpu no_cuda", "run.device", refused, {{"true", "cpu"}, {"false", ""}}},
    {"resume_from_checkpoint", "run.resume", refused, {{"true", "latest"}, {"false", ""}}, "or a path"},
    {"auto_resume_from_checkpoints", "run.resume", refused, {{"true", "auto"}, {"false", ""}}},
    {"ignore_data_skip restore_callback_states_from_checkpoint", "", ignored, {},
     "a resumed run continues with the state of its checkpoint and the data that follow"},
    {"enable_profiling wall_clock_breakdown", "run.trace"},
    {"profiler.", "run.trace", refused, {}, "true, or the steps such as \"100:110\""},
    {"save_steps save_interval checkpoint.interval checkpoint_every save_every_n_steps", "checkpoint.save_every", copied, {}, "",
     steps},
    {"saves_per_epoch", "checkpoint.save_every", refused, {}, "1 / (epochs x saves_per_epoch), a fraction of the run", per_epoch},
    {"save_strategy", "checkpoint.save_every", refused,
     {{"no false", "0"}, {"epoch", "true", "", "checkpoint.save_each_epoch"}, {"steps", "", "save_steps says how often"}},
     "otherwise the number of steps", strategy},
    {"enable_checkpoint", "checkpoint.save_every", refused, {{"false", "0"}, {"true", ""}}},
    {"save_total_limit keep_latest_k keep_last_n_checkpoints", "checkpoint.keep"},
    {"max_shard_size", "checkpoint.shard_size"},
    {"export_size", "checkpoint.shard_size", refused, {}, "a size such as \"5GB\""},
    {"export_dir", "", ignored, {},
     "\"ckpt export\" writes a model folder, and \"ckpt merge-adapter\" one with an adapter added"},
    {"async_mode", "checkpoint.async", refused, {{"disabled", "false"}, {"*", "true"}}},
    {"save_safetensors", "", ignored, {}, "all files of weights are safetensors"},
    {"save_only_model", "", ignored, {}, "checkpoints have what a resume needs; model/ of the run has the weights alone"},
    {"save_adapter_weights_only", "", ignored, {}, "with lora.rank a run saves only its adapter, not the model"},
    {"save_on_each_node", "", ignored, {}, "all ranks write one checkpoint, in a folder that all hosts see"},
    {"enable_jit_checkpoint", "", ignored, {}, "checkpoint.on_sigterm saves when a signal ends the run"},
    {"save_first_step", "", ignored, {}, "checkpoint.save_every sets how often a checkpoint is written"},
    {"logging_steps log_interval log_freq log_every_n_steps steps_per_print", "log.every"},
    {"logging_strategy", "log.every", refused, {}, "the number of steps"},
    {"disable_tqdm logging_first_step", "", ignored, {},
     "metrics.jsonl has every step; log.every sets the lines on the terminal"},
    {"log_level log_level_replica", "", ignored, {}, "start with --verbose to print all details"},
    {"log_on_each_node", "", ignored, {}, "rank 0 writes for all"},
    {"debug", "", ignored, {}, "collectives are always checked"},
    {"include_tokens_per_second include_num_input_tokens_seen log_peak_memory_stats skip_memory_metrics logging_nan_inf_filter "
     "include_tkps", "", ignored, {}, "metrics.jsonl has the tokens, rate and memory of every step"},
    {"logging_dir project plot_loss report_to use_wandb enable_wandb use_swanlab use_mlflow use_comet wandb* mlflow* comet_* "
     "trackio_* metric_logger.", "", ignored, {},
     "every run writes metrics.jsonl and report.html into run.dir; log.tensorboard = true adds event files"},
    {"enable_tensorboard use_tensorboard", "log.tensorboard"},
    {"push_to_hub hub_*", "", ignored, {}, "nothing is uploaded; the folder model/ of the run opens in transformers"},
    // Data.
    {"max_seq_length max_length max_seq_len sequence_len sequence_length seq_length block_size context_length cutoff_len "
     "model_max_length", "data.seq_len"},
    {"max_train_samples max_eval_samples", "data.max_samples", refused, {}, "for data.train and data.eval alike"},
    {"packing packed sample_packing neat_packing", "data.packing", refused, {{"true", "best_fit"}, {"false", "none"}}},
    {"packing_strategy", "data.packing", refused, {{"bfd", "best_fit"}, {"bfd_split", "best_fit_split"}, {"wrapped", "wrapped"}},
     "", packing},
    {"excess_length_strategy", "data.packing", refused, {{"truncate", "best_fit"}, {"split", "best_fit_split"}}, "", packing},
    {"padding_free batch_flattening", "", ignored, {},
     "data.packing = \"best_fit\" packs documents; padding costs memory, and changes nothing else"},
    {"group_by_length", "", refused, kOff, "data is read in a random order; data.packing = \"best_fit\" wastes least"},
    {"length_column_name", "", ignored, {}, "data is read in a random order; data.packing = \"best_fit\" wastes least"},
    {"sample_packing_* multipack_real_batches", "", ignored, {}, "data.packing = \"best_fit\" has no options"},
    {"eval_packing eval_sample_packing eval_sequence_len", "", ignored, {},
     "data.packing and data.seq_len are for data.train and data.eval"},
    {"truncation_mode", "data.truncation"},
    {"padding_side", "data.padding"},
    {"pad_to_multiple_of", "", ignored, {}, "sequences have data.seq_len tokens; model.pad_to_multiple_of is for the vocabulary"},
    {"dataloader_drop_last collate_fn pad_to_sequence_len pad_to_max_length", "", ignored, {},
     "every sequence has data.seq_len tokens, and every batch is complete"},
    {"dataset datasets dataset_name dataset_path dataset_dir dataset.source data_files data_path train_file train_data input_bin",
     "data.train", paths, {}, kFile},
    {"validation_file validation.dataset eval_dataset eval_data val_data dataset_val test_datasets input_val_bin", "data.eval",
     paths, {}, kFile},
    {"val_set_size val_size test_split_size", "data.eval", refused, {{"0", "", "no evaluation"}},
     "a file; prepare --eval-out takes documents from the data for it"},
    {"datasets.type dataset._component_", "", refused,
     {{"chat_template completion sharegpt *.chat_dataset *.text_completion_dataset", ""}},
     "the records of data.train are texts, prompts with completions, conversations or instructions, and data.chat_template "
     "gives them their text, without headers such as Alpaca's"},
    {"ds_type", "", ignored, {}, "the content of a file tells whether it is JSON, text or a table"},
    {"split splits dataset_train_split", "", refused, {{"train train,test", ""}}, kSplits},
    {"dataset_test_split", "", ignored, {}, kSplits},
    {"field_messages", "", refused, {{"messages conversations", ""}}, kFields},
    {"message_field_role message_property_mappings.role", "", refused, {{"role from", ""}}, kFields},
    {"message_field_content message_property_mappings.content", "", refused, {{"content value", ""}}, kFields},
    {"roles.", "", refused, {{"user human assistant gpt system", ""}}, kFields},
    {"train_on_eos train_on_eot", "", refused, {{"turn", ""}}, "of a turn, the token that ends it is trained"},
    {"dataset_exact_deduplication", "", refused, kOff, "every record is kept"},
    {"interleave_probs concat_sampling_probabilities", "data.weights", refused, {},
     "a list with one number for each file of data.train"},
    {"mix_strategy", "", refused, {{"concat", ""}},
     "data.weights has a number for each file of data.train; every file is repeated as often as needed"},
    {"shuffle_merged_datasets", "data.shuffle"},
    {"train_sampling_strategy", "data.shuffle", refused, {{"random", "true"}, {"sequential", "false"}}},
    {"shuffle_dataset", "", ignored, {}, "data.shuffle decides, in every epoch"},
    {"dataset_text_field text_column", "data.text_field"},
    {"remove_unused_columns", "", ignored, {}, "data.columns names the columns of tables; others have no effect"},
    {"accelerator_config. dataset_num_proc preprocessing_num_workers dataset_processes num_workers streaming dataloader_* "
     "dataloader. dataset_streaming dataset_keep_in_memory", "", ignored, {},
     "data is read from a mapped file, without worker processes"},
    {"dataset_prepared_path", "", ignored, {}, "tokens are kept beside the data, in FILE.HASH.tok"},
    {"skip_prepare_dataset", "", ignored, {}, "data.train may be tokens that prepare made"},
    {"chat_template chat_template_path chat_template_format", "data.chat_template", copied,
     {{"tokenizer_default none", "", "the chat template is that of the tokenizer's folder"}}},
    {"template", "data.chat_template", refused, {}, "a built-in name or a file"},
    {"chat_template_jinja", "data.chat_template", paths, {}, "a file with the template"},
    {"tokenizer_name tokenizer_name_or_path tokenizer_config tokenizer_path tokenizer.path", "data.tokenizer", paths,
     {{"*.model", "", "the tokenizer is that of model.init_from"}}, "the folder that has it"},
    {"merges_file merges_path vocab_path tokenizer_type tokenizer_use_fast tokenizer_legacy", "", ignored, {},
     "all files of the tokenizer's folder are read, and decide"},
    {"special_tokens added_tokens new_special_tokens add_tokens", "data.tokenizer", refused, {},
     "a folder whose tokenizer.json has the new tokens, with a larger model.vocab"},
    {"special_tokens. eos_token", "", refused, kNothing, "the files of the tokenizer decide which tokens are special"},
    {"special_tokens.pad_token pad_token", "", ignored, {}, "padding is never trained"},
    {"add_special_tokens append_concat_token", "", refused, {{"true", ""}},
     "special tokens of a conversation are those of its chat template; a text has those of its tokenizer, and its end",
     chat_ends},
    {"train_on_inputs train_on_input train_on_prompt", "data.train_on", refused, {{"true", "all"}, {"false", "assistant"}}},
    {"mask_history", "data.train_on", refused, {{"true", "last"}, {"false", "assistant"}}},
    {"roles_to_train", "data.train_on", refused, {{"assistant", "assistant"}, {"all", "all"}}, "of all roles"},
    {"assistant_only_loss completion_only_loss", "data.train_on", refused, {{"true", "assistant"}, {"false", "all"}}},
    // Other kinds of training.
    {"rl pref_loss loss_type", "train.loss", refused,
     {{"sigmoid dpo", "dpo"}, {"ipo", "ipo"}, {"orpo", "orpo"}, {"grpo dapo", "policy"}, {"nll chunked_nll", ""}},
     "policy learns from given rollouts"},
    {"loss._component_", "train.loss", refused,
     {{"*crossentropyloss *cewithchunkedoutputloss*", "", "the loss is the cross-entropy"}, {"*dpoloss", "dpo"}},
     "\"sft\" for the cross-entropy"},
    {"dpo.beta", "preference.beta", refused, {}, "with train.loss = \"dpo\""},
    {"dpo_beta pref_beta", "preference.beta"},
    {"label_smoothing", "preference.label_smoothing", refused, {}, "of dpo; the loss of tokens is not smoothed"},
    {"pref_ftx rpo_alpha", "preference.sft_weight"},
    {"desirable_weight", "preference.desirable_weight"},
    {"undesirable_weight", "preference.undesirable_weight"},
    {"reference_free", "preference.reference_free"},
    {"dpo. ref_model", "", refused, kNothing, kOwnReference},
    {"sync_ref_model", "", refused, kOff, kOwnReference},
    {"precompute_ref_log_probs precompute_ref_batch_size ref_model_mixup_alpha ref_model_sync_steps", "", ignored, {},
     kOwnReference},
    {"grpo. ppo. reward_model reward_model_path reward_funcs num_generations", "", refused, kNothing,
     "there are no reward models, and no sampling while training (PPO): train.loss = \"policy\" learns from rollouts that an "
     "inference server made"},
    {"epsilon", "policy.clip_low", refused, {}, "of the ratio in GRPO; that of an optimizer is optimizer.eps"},
    {"epsilon_high", "policy.clip_high"},
    {"importance_sampling_level", "policy.ratio", refused, {{"sequence", "answer"}, {"token", "token"}}},
    {"disable_dropout", "", ignored, {}, kNoDropout},
    {"f_divergence_type", "", refused, {{"reverse_kl", ""}}, "the divergence of dpo is the reverse one of Kullback and Leibler"},
    {"f_alpha_divergence_coef discopop_tau", "", ignored, {}, "of another loss than those of train.loss"},
    {"use_weighting", "", refused, kOff, "all pairs weigh alike"},
    {"max_prompt_length max_completion_length", "", refused, kNothing,
     "answers are never cut; data.seq_len holds a pair, and longer ones are dropped"},
    {"stage", "", refused, {{"sft pt", ""}},
     "the lines of data.train decide: texts, prompts with completions, or chats; train.loss = \"dpo\" learns from pairs"},
    // Adapters and 4-bit weights.
    {"adapter use_peft use_peft_lora finetuning_type peft_type", "lora.rank", refused,
     {{"true lora", "true", "", "lora"}, {"qlora", "true", "", "lora quant"}, {"false full", "false", "no adapter", "lora"}},
     "above 0 for lora and qlora, 0 for full; for qlora, quant.base = \"nf4\" too; model.trainable for freeze"},
    {"lora_r lora.r lora_config.r peft_config.r lora_rank", "lora.rank"},
    {"lora_alpha", "lora.alpha"},
    {"lora_dropout", "lora.dropout"},
    {"target_modules", "lora.targets"},
    {"lora_target_modules lora_target", "lora.targets", copied, {{"all", "all-linear"}}, "", targets},
    {"lora_target_linear", "lora.targets", refused, {{"true", "all-linear"}, {"false", ""}}},
    {"lora_attn_modules", "lora.targets", refused, {}, "a list such as [\"q_proj\", \"v_proj\"]", more_targets},
    {"apply_lora_to_mlp", "lora.targets", refused, {{"true", "gate_proj,up_proj,down_proj"}, {"false", "", "no more layers"}},
     "with the layers of lora_attn_modules", more_targets},
    {"apply_lora_to_output", "lora.targets", refused, {{"true", "lm_head"}, {"false", "", "no more layers"}},
     "with the layers of lora_attn_modules", more_targets},
    {"exclude_modules", "lora.exclude"},
    {"modules_to_save lora_modules_to_save", "lora.save_modules"},
    {"additional_target", "lora.save_modules", refused, {}, "a list of modules"},
    {"trainable_token_indices", "lora.save_modules", refused, {}, "[\"embed_tokens\"], which trains all tokens"},
    {"layers_to_transform peft_layers_to_transform", "lora.layers"},
    {"use_rslora peft_use_rslora", "lora.rslora"},
    {"lora_bias", "lora.bias"},
    {"init_lora_weights peft_init_lora_weights", "lora.init", refused, {{"true", "kaiming"}, {"gaussian", "gaussian"}}},
    {"use_dora peft_use_dora pissa_init use_loftq", "", refused, kOff, kNoOtherAdapters},
    {"loraplus_lr_ratio", "", refused, {{"1", ""}}, "all parameters have one learning rate, optimizer.lr"},
    {"fan_in_fan_out lora_fan_in_fan_out", "", ignored, {}, "layers are recognized by the family of the model"},
    {"task_type lora_task_type", "", refused, {{"causal_lm", ""}}, "adapters are for language models"},
    {"lora_model_dir adapter_name_or_path", "model.adapter"},
    {"unfrozen_parameters freeze_trainable_modules freeze_trainable_layers", "model.trainable", refused, {},
     "name patterns such as [\"model.layers.31.*\", \"*.mlp.*\"], in which only * is special"},
    {"load_in_4bit use_4bit_quantization quantize_base", "quant.base", refused,
     {{"true", "true", "", "quant"}, {"false", "false", "the base is not quantized", "quant"}},
     "\"nf4\" or \"fp4\" for true, \"none\" for false"},
    {"quantization_bit", "quant.base", refused, {{"4", "true", "", "quant"}}, "\"nf4\" or \"fp4\" for 4"},
    {"bnb_4bit_quant_type quantization_type", "quant.base"},
    {"bnb_4bit_use_double_quant use_bnb_nested_quant use_nested_quant double_quantization", "quant.double"},
    {"bnb_4bit_compute_dtype", "quant.compute", refused, kDtypes},
    {"upcast_layernorm", "quant.upcast_norms"},
    {"llm_int8_skip_modules", "quant.skip"},
    {"gptq", "", refused, kOff, "the 4-bit formats are nf4 and fp4, of quant.base"},
    {"load_in_8bit use_8bit_quantization", "", refused, kOff, kNoEightBit},
    {"llm_int8_threshold", "", ignored, {}, kNoEightBit},
    {"bnb_4bit_quant_storage bnb_4bit_quant_storage_dtype", "", ignored, {},
     "4-bit weights are stored in bytes, which every strategy shards"},
    // Ranks.
    {"num_processes nproc_per_node world_size", "", ignored, {}, kLauncher, ranks},
    {"use_ray ray_* local_rank machine_rank num_machines main_process_ip main_process_port main_training_function "
     "mpirun_config dynamo_config gpu_ids rdzv_backend same_network tpu_env", "", ignored, {}, kLauncher},
    {"compute_environment", "", refused, {{"local_machine", ""}}, kLauncher},
    {"enable_cpu_affinity", "", refused, {{"true false", ""}}, "mpirun and srun bind ranks to processors"},
    {"tpu_use_cluster tpu_use_sudo downcast_bf16", "", refused, kOff, "there are no TPUs"},
    {"distributed_type", "parallel.strategy", refused, {{"multi_gpu multi_cpu no false", "no_shard"}, {"fsdp", "full_shard"}}},
    {"fsdp fsdp_sharding_strategy sharding_strategy", "parallel.strategy", refused, kStrategies},
    {"fsdp_reshard_after_forward reshard_after_forward", "parallel.strategy", refused,
     with({{"true", "full_shard"}, {"false", "shard_grad_op"}}, kStrategies)},
    {"use_distributed_optimizer", "parallel.strategy", refused, {{"true", "zero1"}, {"false", ""}}},
    {"deepspeed zero_stage zero_optimization.stage", "parallel.strategy", refused,
     {{"0", "no_shard"}, {"1", "zero1"}, {"2", "shard_grad_op"}, {"3", "full_shard"}}},
    {"data_parallel_shard_degree data_parallel_shard_dim dp_shard_size hsdp_shard_size", "parallel.group_size", refused, {},
     "the same, with parallel.strategy = \"hybrid\""},
    {"data_parallel_replicate_degree data_parallel_replicate_dim dp_replicate_size", "parallel.group_size", refused, {},
     "ranks / replicas, with parallel.strategy = \"hybrid\""},
    {"fsdp_config", "", ignored, {}, "its settings are keys of [parallel]; train --accelerate reads files of accelerate"},
    {"fsdp_version", "", refused, {{"1 2", ""}}, "its settings are keys of [parallel], the same for both versions"},
    {"fsdp_auto_wrap_policy auto_wrap_policy", "parallel.wrap", refused,
     {{"transformer_based_wrap 1", "block"}, {"size_based_wrap 2", "size"}, {"no_wrap 3", "none"}}},
    {"fsdp_transformer_layer_cls_to_wrap fsdp_transformer_cls_to_wrap transformer_layer_cls_to_wrap", "parallel.wrap", ignored,
     {}, "\"block\""},
    {"custom_sharded_layers", "parallel.wrap_patterns", refused, {}, "paths of modules, with parallel.wrap = \"pattern\""},
    {"fsdp_min_num_params min_num_params", "parallel.wrap_size", copied, {}, "the same, with parallel.wrap = \"size\""},
    {"fsdp_ignored_modules", "parallel.replicate", refused, {}, "name patterns of parameters"},
    {"fsdp_offload_params offload_params fsdp_cpu_offload enable_cpu_offload cpu_offload", "parallel.offload"},
    {"offload_param offload_param_device offload_param.device", "parallel.offload", refused, {{"cpu", "true"}, {"none", ""}}},
    {"offload_optimizer offload_optimizer_device offload_optimizer.device", "parallel.offload", refused,
     {{"cpu", "true"}, {"none", ""}}, "or optimizer.kind = \"paged_adamw32bit\""},
    {"cpu_offload_pin_memory", "", ignored, {}, "the memory of parallel.offload is pinned"},
    {"fsdp_backward_prefetch fsdp_backward_prefetch_policy", "parallel.backward_prefetch", refused,
     {{"backward_pre 1", "pre"}, {"backward_post 2", "post"}, {"no_prefetch none 3", "none"}}},
    {"fsdp_forward_prefetch", "parallel.forward_prefetch"},
    {"overlap_comm overlap_grad_reduce overlap_param_gather", "", ignored, {},
     "reductions always overlap the backward pass; parallel.forward_prefetch and parallel.backward_prefetch overlap gathers"},
    {"fsdp_sync_module_states", "parallel.sync_module_states"},
    {"fsdp_cpu_ram_efficient_loading", "parallel.cpu_ram_efficient_loading"},
    {"low_cpu_mem_usage low_cpu_ram lora_on_cpu qlora_sharded_model_loading zero3_init_flag", "", ignored, {},
     "each rank reads or initializes only its own shards"},
    {"fsdp_state_dict_type final_state_dict_type state_dict_type", "", refused,
     {{"full_state_dict 1 sharded_state_dict 2 local_state_dict 3", ""}},
     "checkpoints store whole tensors, which any number of ranks reads"},
    {"fsdp_use_orig_params use_orig_params", "", ignored, {}, "parameters of a unit may differ in whether they are trained"},
    {"ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph ignore_bias_buffers "
     "fsdp_limit_all_gathers limit_all_gathers memory_efficient_fsdp_wrap reduce_bucket_size allgather_bucket_size "
     "stage3_prefetch_bucket_size", "", ignored, {}, "parallel.wrap sets the size of a communication unit"},
    {"stage3_param_persistence_threshold", "", ignored, {}, "parallel.replicate names parameters that stay unsharded"},
    {"ddp_backend", "parallel.transport"},
    {"ddp_timeout init_timeout_seconds train_timeout_seconds", "parallel.timeout_seconds"},
    {"pipeline_parallel_degree pipeline_parallel_size pipeline_model_parallel_size pp_degree pp_size", "parallel.stages"},
    {"pipeline_parallel_schedule", "parallel.schedule"},
    {"virtual_pipeline_model_parallel_size", "parallel.chunks", refused, {},
     "the same, with parallel.schedule = \"interleaved\""},
    {"pipeline_parallel_split_points", "parallel.device_map", refused, {}, "a table from prefixes of parameter names to stages"},
    {"tensor_parallel_degree tensor_parallel_size tensor_parallel_dim tensor_model_parallel_size tp_size "
     "context_parallel_degree context_parallel_size cp_size sequence_parallel sequence_parallel_degree "
     "enable_async_tensor_parallel parallelism_config", "", refused, {{"false 0 1", ""}},
     "ranks divide the batch (parallel.strategy), the layers (parallel.stages) or experts (parallel.expert_ranks); there is no "
     "tensor, sequence or context parallelism"},
    {"expert_parallel_degree expert_model_parallel_size expert_parallel_size ep_size", "parallel.expert_ranks"},
    {"fault_tolerance.", "", ignored, {}, "start with --resume auto: the same command then resumes the run"},
    // Model.
    {"model_name_or_path pretrained_model_name_or_path model_name model base_model base_model_name_or_path base_model_config "
     "checkpoint_dir initial_load_path hf_assets_path", "model.init_from", paths, {},
     "a folder with config.json and safetensors files"},
    {"checkpoint_files checkpoint_files.", "", ignored, {}, "all weights of the folder model.init_from are read"},
    {"model_revision", "", refused, {{"main", ""}}, "model.init_from is a folder; download the revision you need"},
    {"trust_remote_code", "", ignored, {}, "folders are read without running code from them"},
    {"model_type", "model.family", copied, {{"*for*", "", kFolderDecides}}},
    {"type_of_model is_llama_derived_model is_mistral_derived_model is_qwen_derived_model", "", ignored, {}, kFolderDecides},
    {"architectures", "model.family", refused, {}, "\"llama\" for LlamaForCausalLM, and so on"},
    {"hidden_act", "model.family", refused, {}, "a family, which decides the activation"},
    {"model._component_", "", ignored, {{"*qlora*", "true", "", "quant"}, {"*dora*", nullptr, kNoOtherAdapters}}, kNoClasses},
    {"_component_", "", ignored, {}, kNoClasses},
    {"model.flavor", "", ignored, {}, "sizes are keys of [model], or those of the folder model.init_from"},
    {"n_layer n_layers num_layers num_hidden_layers", "model.layers"},
    {"n_embd dim embed_dim d_model hidden_size", "model.hidden"},
    {"n_head n_heads num_heads num_attention_heads", "model.heads"},
    {"n_kv_heads num_kv_heads num_query_groups num_key_value_heads", "model.kv_heads"},
    {"intermediate_size intermediate_dim ffn_hidden_size n_inner", "model.ffn"},
    {"vocab_size", "model.vocab"},
    {"resize_vocab", "model.vocab", refused, {}, "the number of tokens, added ones included"},
    {"resize_token_embeddings_to_32x", "model.pad_to_multiple_of", refused, {{"true", "32"}, {"false", ""}}},
    {"max_position_embeddings n_positions n_ctx", "model.max_positions"},
    {"rms_norm_eps layer_norm_epsilon", "model.norm_eps"},
    {"rope_base rotary_base", "model.rope_theta"},
    {"rope_scaling rope_scaling.type rope_scaling.rope_type", "model.rope_scaling.kind"},
    {"original_max_position_embeddings", "model.rope_scaling.original_max_positions"},
    {"sliding_window", "model.window"},
    {"rope_local_base_freq", "model.window_rope_theta"},
    {"sliding_window_pattern", "model.full_attention_every"},
    {"layer_types", "model.full_attention_blocks", refused, {}, "the indices of the layers with full attention"},
    {"no_rope_layer_interval", "model.no_rope_every"},
    {"no_rope_layers", "model.no_rope_blocks", refused, {}, "the indices of the layers that have 0 there"},
    {"logits_scaling", "model.logit_divisor"},
    {"query_pre_attn_scalar", "model.query_scalar"},
    {"attn_logit_softcapping", "model.attention_softcap"},
    {"final_logit_softcapping", "model.logit_softcap"},
    {"tie_word_embeddings", "model.tied"},
    {"attention_bias", "model.qkv_bias"},
    {"num_experts num_local_experts", "model.experts"},
    {"num_experts_per_tok num_experts_per_token moe_router_topk", "model.experts_per_token"},
    {"moe_intermediate_size moe_ffn_hidden_size", "model.expert_ffn"},
    {"shared_expert_intermediate_size", "model.shared_ffn"},
    {"n_routed_experts", "model.experts"},
    {"routed_scaling_factor moe_router_topk_scaling_factor", "model.routed_scale"},
    {"n_group moe_router_num_groups", "model.expert_groups"},
    {"topk_group moe_router_group_topk", "model.top_groups"},
    {"norm_topk_prob", "model.norm_topk"},
    {"mlp_only_layers", "model.dense_blocks"},
    {"dropout attention_dropout hidden_dropout attn_pdrop embd_pdrop resid_pdrop", "", refused, kOff, kNoDropout},
    {"use_liger_kernel enable_liger_kernel liger_kernel_config use_unsloth unsloth_* liger_* cut_cross_entropy "
     "chunked_cross_entropy lora_mlp_kernel lora_qkv_kernel lora_o_kernel compile compile. torch_compile torch_compile_backend "
     "torch_compile_mode dynamo_backend", "", ignored, {},
     "the kernels are compiled and fused already; train.head_chunk bounds the memory of logits"},
    {"plugins", "", refused, {{"*.ligerplugin *.cutcrossentropyplugin", ""}},
     "kernels are fused already, and there are no plugins"},
    {"flash_attention flash_attn* use_flash_attn* eager_attention sdp_attention xformers_attention attn_implementation", "",
     ignored, {}, "attention is always computed in blocks, without storing the scores"},
  };
}
// clang-format on

// Whether a part of the key is the section that the spelling names, such as "profiler.", or has the prefix
// that it names, such as "wandb*".
bool names_section(std::string spelling, const std::string& key) {
  if (!spelling.ends_with('*') && !spelling.ends_with('.')) return false;
  if (spelling.ends_with('*')) spelling.pop_back();
  return ("." + key).find("." + spelling) != std::string::npos;
}

bool matches(const std::string& value, std::string word) {
  const bool any_begin = word.starts_with('*'), any_end = word.size() > 1 && word.ends_with('*');
  word = word.substr(any_begin, word.size() - any_begin - any_end);
  if (any_begin && any_end) return value.find(word) != value.npos;
  if (any_begin || any_end) return any_begin ? value.ends_with(word) : value.starts_with(word);
  return value == word || (number_in(word) && number_in(word) == number_in(value));
}

}  // namespace

std::span<const ForeignKey> foreign_keys() {
  static const std::vector<ForeignKey> all = rows();
  return all;
}

const ForeignKey* foreign_key(const std::string& key) {
  static const std::map<std::string, const ForeignKey*> by_spelling = [] {
    std::map<std::string, const ForeignKey*> all;
    for (const ForeignKey& row : foreign_keys())
      for (const std::string& spelling : split(row.spellings, ' ')) all.emplace(spelling, &row);
    return all;
  }();
  std::string whole = lower(key);
  std::replace(whole.begin(), whole.end(), '-', '_');
  for (std::string name = whole;; name.erase(0, name.find('.') + 1)) {
    if (const auto found = by_spelling.find(name); found != by_spelling.end()) return found->second;
    if (name.find('.') == name.npos) break;
  }
  for (const auto& [spelling, row] : by_spelling)
    if (names_section(spelling, whole)) return row;
  return nullptr;
}

bool is_among(const std::string& value, const char* words) {
  const std::vector<std::string> all = split(words, ' ');
  return value.empty()
             ? all.empty()
             : std::any_of(all.begin(), all.end(), [&](const auto& word) { return matches(value, word); });
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream rest(text);
  for (std::string part; std::getline(rest, part, separator);) parts.push_back(part);
  return parts;
}

std::optional<double> number_in(const std::string& text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  const bool is_whole = error == std::errc{} && end == last && std::isfinite(value);
  return is_whole ? std::optional(value) : std::nullopt;
}

}  // namespace flatshard
