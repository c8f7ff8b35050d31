"""Keys that an experiment cannot have any more: those of the original system's experiments, and of earlier versions.

Whoever has such a YAML file is told what a key is called here, or why there is none, instead of "unknown key".
"""

from __future__ import annotations

from collections.abc import Iterator

LOSS_SECTIONS = ("", ".loss_config")
LOSS_WEIGHTS = {
    "lambda_mse": "mse",
    "lambda_wasserstein": "wasserstein",
    "lambda_dist": "distribution",
    "lambda_supcr": "supcr",
}
LOSS_KEYS = {
    "wasserstein_p": "loss.p",
    "buffer_size": "loss.buffer_size",
    "use_buffer": "loss.buffer_size",
    "min_samples_for_wasserstein": "loss.min_samples",
    "min_samples_for_supcr": "loss.min_samples",
    "supcr_temperature": "loss.temperature",
    "init_temperature": "loss.temperature",
    "final_temperature": "loss.temperature_final",
    "use_temp_scheduling": "loss.temperature_schedule",
    "temp_schedule": "loss.temperature_schedule",
    "use_adaptive_weighting": "loss.adaptive",
    "max_epochs": "trainer.epochs",
}
LOSS_DROPPED = {
    "wasserstein_blur": "the distance is exact, by sorting, so nothing is blurred",
    "wasserstein_scaling": "the distance is exact, by sorting, so there are no Sinkhorn iterations",
    "use_ddp_gather": "strains of all ranks are always compared, with gradient",
    "gather_interval": "strains of all ranks are compared in every step, with gradient",
}
SCHEDULER_KEYS = {
    "type": "scheduler.name",
    "first_cycle_steps": "scheduler.first_cycle",
    "cycle_mult": "scheduler.cycle_mult",
    "max_lr": "optimizer.lr",
    "min_lr": "scheduler.min_lr",
    "warmup_steps": "scheduler.warmup",
    "gamma": "scheduler.gamma",
    "factor": "scheduler.factor",
    "patience": "scheduler.patience",
    "threshold": "scheduler.threshold",
    "cooldown": "scheduler.cooldown",
}

RENAMED = {
    "wandb.project": "tracking.project",
    "wandb.tags": "experiment.tags",
    "cell_dataset.graphs": "cell.networks",
    "cell_dataset.incidence_graphs": "cell.model",
    "transforms.use_transforms": "data.normalise",
    "transforms.forward_transform.normalization.gene_interaction.strategy": "data.normalise",
    "data_module.is_perturbation_subset": "split.subset",
    "data_module.perturbation_subset_size": "split.subset",
    "data_module.batch_size": "data.batch_size",
    "data_module.val_batch_size": "data.eval_batch_size",
    "trainer.max_epochs": "trainer.epochs",
    "norms": "model.norm",
    "model.checkpoint_path": "resume",
    "model.hidden_channels": "model.hidden",
    "model.num_layers": "model.layers",
    "model.gene_encoder_config.encoder_type": "model.conv",
    "model.gene_encoder_config.graph_aggregation_method": "model.cross_relation",
    "model.gene_encoder_config.graph_aggregation_config.aggregation_norm": "model.cross_relation_norm",
    "model.gene_encoder_config.graph_aggregation_config.pairwise_num_layers": "model.cross_relation_layers",
    "model.gene_encoder_config.graph_aggregation_config.pairwise_hidden_dim": "model.cross_relation_hidden",
    "model.gene_encoder_config.graph_aggregation_config.dropout": "model.dropout",
    "model.gene_encoder_config.heads": "model.conv_heads",
    "model.gene_encoder_config.gin_num_layers": "model.gin_layers",
    "model.gene_encoder_config.gin_hidden_dim": "model.gin_hidden",
    "model.local_predictor_config.use_local_predictor": "model.local_head",
    "model.local_predictor_config.num_attention_layers": "model.local_layers",
    "model.local_predictor_config.num_heads": "model.local_heads",
    "model.local_predictor_config.combination_method": "model.combination",
    "model.num_heads": "model.heads",
    "regression_task.loss": "loss.name",
    "regression_task.is_weighted_phenotype_loss": "loss.phenotype_weights",
    **{f"regression_task.{key}": f"loss.{name}" for key, name in LOSS_WEIGHTS.items()},
    **{f"regression_task{section}.{key}": name for key, name in LOSS_KEYS.items() for section in LOSS_SECTIONS},
    "regression_task.loss_scheduler.type": "loss.schedule",
    "regression_task.loss_scheduler.transition_epoch": "loss.transition_epoch",
    "regression_task.optimizer.type": "optimizer.name",
    "regression_task.optimizer.lr": "optimizer.lr",
    "regression_task.optimizer.weight_decay": "optimizer.weight_decay",
    **{f"regression_task.lr_scheduler.{key}": name for key, name in SCHEDULER_KEYS.items()},
    "regression_task.clip_grad_norm": "trainer.gradient_clip_val",
    "regression_task.clip_grad_norm_max_norm": "trainer.gradient_clip_val",
    "regression_task.grad_accumulation_schedule": "trainer.accumulate_grad_batches",
    "regression_task.plot_every_n_epochs": "plot_every",
    "regression_task.plot_sample_ceiling": "plot_points",
}
"""Key of the original → key here."""

NO_EFFECT = "it had no effect in the original, whose forward pass never read it"
RESIDENT = "strains are integers in device memory, gathered there; no loader workers, no copies of graphs"

DROPPED = {
    "defaults": "files are composed by `extends:`",
    "wandb": "see `tracking` (`tracking.wandb: offline` turns it on)",
    "cell_dataset.node_embeddings": "every node has a learnt embedding; fixed inputs are added by `model.features`",
    "cell_dataset.learnable_embedding_input_channels": f"{NO_EFFECT}: states are `model.hidden` wide",
    "cell_dataset.use_preprocessed": f"nothing is preprocessed per strain: {RESIDENT}",
    "cell_dataset.preprocessed_root": f"nothing is preprocessed per strain: {RESIDENT}",
    "profiler": "`dglcell profile FILE` says where a training step's time goes",
    "data_module.num_workers": RESIDENT,
    "data_module.pin_memory": RESIDENT,
    "data_module.prefetch": RESIDENT,
    "data_module.prefetch_factor": RESIDENT,
    "data_module.persistent_workers": RESIDENT,
    "data_module.use_full_masks": "no mask is stored: a strain is its deleted genes",
    "trainer.overfit_batches": "train on a few strains by `split.subset: {size: N}`",
    "compile_mode": "set `model.compile` (auto, true or false): `torch.compile` around functions of rows",
    "heads": "set `model.conv_heads` (gatv2), `model.local_heads` and `model.cross_relation_heads`",
    "model.gene_num": "counted in the cell graph",
    "model.reaction_num": "counted in the cell graph",
    "model.metabolite_num": "counted in the cell graph",
    "model.gene_encoder_config.concat": "heads of gatv2 are concatenated; GIN has none",
    "model.gene_encoder_config.bias": "convolutions have biases",
    "model.gene_encoder_config.add_self_loops": "self-loops are edges: set `cell.self_loops`",
    "model.gene_encoder_config.share_weights": "gatv2 has weights of its own for both ends, as published",
    "model.gpr_conv_config": f"{NO_EFFECT}; metabolism is live by `model.metabolism: true`, with `model.conv`",
    "model.metabolism_config": f"{NO_EFFECT}; metabolism is live by `model.metabolism: true`, with `model.conv`",
    "model.prediction_head_config": f"{NO_EFFECT}; the global head is an MLP of two layers",
    **{f"regression_task{section}.{key}": why for key, why in LOSS_DROPPED.items() for section in LOSS_SECTIONS},
    "regression_task.execution_mode": "`dglcell profile FILE --mode data|forward|backward|full`",
    "regression_task.lr_scheduler": "set `scheduler.name`, `none` for no schedule; a plateau is one of the validation "
    "loss, relative to the best",
}
"""Key, or section, of the original → why there is none here."""

REMOVED = {
    "trainer.train_ranking": "the training part is always ranked; an epoch's predictions take 8 bytes a strain",
    "trainer.cuda_graph": "steps are launched as they are; it was never run on a GPU",
}
"""Key of an earlier version → why there is none any more. What a run wrote down is read without these keys."""


def explain(key: str, value: object = None) -> str | None:
    """What a key of the original system is called here, or why a key is gone; None for one that never was.

    Args:
        key: dotted.
        value: what is set; the keys of a section are explained each.
    """
    answers = list(dict.fromkeys(_answers(key, value)))
    return "; ".join(answers) or None


def _answers(key: str, value: object) -> Iterator[str]:
    if key in REMOVED:
        yield f"leave out `{key}`: {REMOVED[key]}"
    elif key in RENAMED:
        yield f"`{key}` of the original system is `{RENAMED[key]}` here"
    elif isinstance(value, dict) and value and any(known.startswith(f"{key}.") for known in (*RENAMED, *DROPPED)):
        for name, below in value.items():
            yield from _answers(f"{key}.{name}", below)
    elif section := next((k for k in DROPPED if key == k or key.startswith(f"{k}.")), None):
        yield f"leave out `{key}` of the original system: {DROPPED[section]}"
