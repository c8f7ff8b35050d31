"""Whoever has a file of the original system, or of an earlier version, is told about every key that is not here."""

from __future__ import annotations

from pathlib import Path

import pytest

from dglcell.config.experiment import KINDS, Config
from dglcell.config.original import explain, original_keys
from tests.config_files import refusal, write

RENAMED, DROPPED = original_keys()
ENCODER = "model.gene_encoder_config"
KEYS = (
    "wandb.project wandb.tags "
    "cell_dataset.graphs cell_dataset.node_embeddings cell_dataset.learnable_embedding_input_channels "
    "cell_dataset.incidence_graphs cell_dataset.use_preprocessed cell_dataset.preprocessed_root "
    "transforms.use_transforms transforms.forward_transform.normalization.gene_interaction.strategy "
    "profiler.enabled profiler.is_pytorch "
    "data_module.is_perturbation_subset data_module.perturbation_subset_size data_module.batch_size "
    "data_module.val_batch_size data_module.num_workers data_module.pin_memory data_module.prefetch "
    "data_module.prefetch_factor data_module.persistent_workers data_module.use_full_masks "
    "trainer.max_epochs trainer.overfit_batches compile_mode heads norms "
    "model.checkpoint_path model.gene_num model.reaction_num model.metabolite_num model.hidden_channels "
    "model.num_layers "
    f"{ENCODER}.encoder_type {ENCODER}.graph_aggregation_method {ENCODER}.graph_aggregation_config.aggregation_norm "
    f"{ENCODER}.graph_aggregation_config.pairwise_num_layers {ENCODER}.graph_aggregation_config.pairwise_hidden_dim "
    f"{ENCODER}.graph_aggregation_config.dropout {ENCODER}.heads {ENCODER}.concat {ENCODER}.bias "
    f"{ENCODER}.add_self_loops {ENCODER}.share_weights {ENCODER}.gin_num_layers {ENCODER}.gin_hidden_dim "
    "model.gpr_conv_config.encoder_type model.gpr_conv_config.heads model.metabolism_config.is_stoich_gated "
    "model.metabolism_config.use_attention model.prediction_head_config.head_num_layers "
    "model.prediction_head_config.head_norm "
    "model.local_predictor_config.use_local_predictor model.local_predictor_config.num_attention_layers "
    "model.local_predictor_config.num_heads model.local_predictor_config.combination_method "
    "regression_task.loss regression_task.is_weighted_phenotype_loss regression_task.lambda_mse "
    "regression_task.lambda_wasserstein regression_task.lambda_supcr regression_task.execution_mode "
    "regression_task.optimizer.type regression_task.optimizer.lr regression_task.optimizer.weight_decay "
    "regression_task.lr_scheduler.type regression_task.lr_scheduler.first_cycle_steps "
    "regression_task.lr_scheduler.cycle_mult regression_task.lr_scheduler.max_lr regression_task.lr_scheduler.min_lr "
    "regression_task.lr_scheduler.warmup_steps regression_task.lr_scheduler.gamma regression_task.lr_scheduler.mode "
    "regression_task.lr_scheduler.eps regression_task.lr_scheduler regression_task.clip_grad_norm "
    "regression_task.clip_grad_norm_max_norm regression_task.grad_accumulation_schedule "
    "regression_task.plot_sample_ceiling regression_task.plot_every_n_epochs"
).split()
"""Of the experiments 080 to 082 and of DANGO, but for those that have the same name here."""


@pytest.mark.parametrize("key", KEYS)
def test_every_key_is_answered(key: str) -> None:
    answer = explain(key)
    assert answer is not None
    assert f"`{key}`" in answer


@pytest.mark.parametrize("key", RENAMED)
def test_the_new_name_is_a_key(key: str) -> None:
    section, _, rest = RENAMED[key].partition(".")
    kinds = KINDS.get(section, {})
    holders = [kind() for kind in kinds.values()] if kinds else [getattr(Config(), section)]
    assert not rest or any(hasattr(holder, rest) for holder in holders), RENAMED[key]


def test_names_and_reasons_do_not_contradict_each_other() -> None:
    assert not set(RENAMED) & set(DROPPED)


def test_all_keys_of_a_section_are_explained_at_once(tmp_path: Path) -> None:
    text = "cell: {model: textbook}\nwandb: {project: mine, tags: [a]}\n"
    message = refusal(write(tmp_path, "old.yaml", text))
    assert "unknown key `wandb`" in message
    assert "`wandb.project` of the original system is `tracking.project` here" in message
    assert "`wandb.tags` of the original system is `experiment.tags` here" in message


def test_dead_keys_are_named_as_dead(tmp_path: Path) -> None:
    text = "cell: {model: textbook}\nmodel: {gpr_conv_config: {encoder_type: gin}}\n"
    assert "it had no effect in the original" in refusal(write(tmp_path, "old.yaml", text))


def test_a_key_that_nobody_knows_has_no_explanation() -> None:
    assert explain("regression_task.nonsense") is None
    assert explain("nonsense") is None
