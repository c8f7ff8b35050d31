"""From files in the formats of public repositories to tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dglcell.published.conversions import CONVERSIONS, convert
from tests.raw_files import NamedMatrix, write_rda

NAN = np.nan
MODEL_OF = '{{"reactions": [' + ", ".join(['{{"gene_reaction_rule": "{}"}}'] * 3) + "]}}"

TEXTS: dict[str, tuple[list[str], dict[str, Any], str]] = {
    # conversion: files, arguments, table
    "text_rows": (
        ["2 YAL001C YBR002W 0.0247\n2 YBR002W YCL003C -0.0285\n", "2 YAL001C YCL003C 0.1\n"],
        {"columns": {"a": 1, "b": 2, "score": 3}, "label": "of", "labels": ["x", "y"]},
        "a,b,score,of\nYAL001C,YBR002W,0.0247,x\nYBR002W,YCL003C,-0.0285,x\nYAL001C,YCL003C,0.1,y\n",
    ),
    "trigenic_scores": (
        [
            "Query Strain ID\tArray Strain ID\tAdjusted genetic interaction score (epsilon or tau)\tP-value\t"
            "Double/triple mutant fitness\tDouble/triple mutant fitness standard deviation\n"
            "YAL015C+YDL227C_tm461\tYBL007C_dma91\t0.0167\t3.166e-01\t0.9787\t0.0240\n"
            "YAL015C+YOL043C_tm72\tYHR191C_tsa323\t-0.0042\t4.640e-01\t0.9250\t0.0414\n"
            "YAL015C+YOL043C_tm72\tYBL008W_dma90\tNaN\t4.655e-01\t1.0370\t0.0284\n"
            "YAL015C+YOL043C_tm72\tYDR363W-A_dma1099\t-0.0295\t2.511e-01\t0.9220\t0.0376\n"
        ],
        {},
        "q1,q2,array_orf,kind,score,p,fitness,fitness_sd,query,array\n"
        "YAL015C,YOL043C,YDR363W-A,trigenic,-0.0295,0.2511,0.922,0.0376,YAL015C+YOL043C_tm72,YDR363W-A_dma1099\n"
        "YAL015C,YOL043C,YHR191C,trigenic,-0.0042,0.464,0.925,0.0414,YAL015C+YOL043C_tm72,YHR191C_tsa323\n"
        "YAL015C,YDL227C,YBL007C,digenic,0.0167,0.3166,0.9787,0.024,YAL015C+YDL227C_tm461,YBL007C_dma91\n",
    ),
    "matrix_edges": (
        ["SystematicName\tYBR112C\tYBR150C\nYAL001C\t0\t1\nYAL002W\t1\t1\n"],
        {"columns": ["tf", "target"]},
        "tf,target\nYBR150C,YAL001C\nYBR112C,YAL002W\nYBR150C,YAL002W\n",
    ),
    "without_index": ([",EX_fru_e_i,GR_AVG\n0,1,0.25\n1,0,0.125\n"], {}, "EX_fru_e_i,GR_AVG\n1,0.25\n0,0.125\n"),
    "titrated_guides": (
        [
            ",Gene,SG #,PAM loc.,Mut. type,Mut. loc.,H.R. seq\n"
            "b_1,acpS,1,63,Single,-20,TACG\na_1,acpS,1,63,Parent,,AACG\nnegC_1,negC,,,negC,,\n",
            ",mean,reps,sem,std,norm.GR,norm.GR_sem\na_1,-0.1,6,0.01,0.03,0.5,0.02\n",
            ",mean,reps,sem,std,norm.GR,norm.GR_sem\nb_1,-0.1,4,0.01,0.03,0.75,0.01\n",
            "Location,Strand,Gene,Synonym\n1..2,+,acpS,b2563\n",
        ],
        {},
        "guide,gene,b_number,series,pam_location,mutation,mutated,sequence,growth_glucose,sem_glucose,"
        "replicates_glucose,growth_glycerol,sem_glycerol,replicates_glycerol\n"
        "a_1,acpS,b2563,1,63,Parent,,AACG,0.5,0.02,6,,,\n"
        "b_1,acpS,b2563,1,63,Single,-20,TACG,,,,0.75,0.01,4\n"
        "negC_1,negC,,,,negC,,,,,,,,\n",
    ),
    "single_mutants": (
        [
            "YBR002C_damp4\t0.9\t0.1\nYBR002C_dma7\tNaN\tNaN\nYAL001C_tsq1\t0.50\t0.2\nYAL001C_sn2\t1.0\t0.1\n",
            "Strain\tOrf\tCommon\tAllele\nYAL001C_tsq1\tYAL001C\tTFC3\ttfc3-1\nYBR002C_damp4\tYBR002C\tRER2\trer2_damp\n",
        ],
        {},
        "gene,allele,class,strength,fitness,sd,strain,alleles\n"
        "YAL001C,YAL001C_sn2,deletion,0.0,1.0,0.1,YAL001C_sn2,several\n"
        "YAL001C,tfc3-1,ts,0.2,0.50,0.2,YAL001C_tsq1,several\n"
        "YBR002C,rer2_damp,DAmP,0.2,0.9,0.1,YBR002C_damp4,one\n",
    ),
    "negative_pairs": (
        [
            "Triplete_Name rating=0 rating=1 \nho\u0394_bbb1-10_aaa1\u0394 0 1\naaa1\u0394_bbb1-1_ho\u0394 0 1\n"
            "ccc1\u0394_ho\u0394_aaa1\u0394 1 0\nho\u0394_ybr003w\u0394_ccc1\u0394 0 1\n"
            "ho\u0394_none-1_ccc1\u0394 0 1\n"
            "aaa1\u0394_bbb1-1_ccc1\u0394 0 1\n",
            "Strain\tOrf\tCommon\tAllele\n1\tYAL001W\tAAA1\taaa1\n2\tYBR001W\tBBB1\tbbb1-1\n"
            "3\tYCR001W\tCCC1\tccc1\n4\tYDL227C\tHO\tho\n5\tYBR003W\tYBR003W\tybr003w\n",
        ],
        {},
        "gene_a,gene_b\nYAL001W,YBR001W\nYBR003W,YCR001W\n",
    ),
    "keio_densities": (
        [
            "Gene ID,Gene,Colonies,LB_22hr,MOPS_24hr,MOPS_48hr,,\n"
            "ECK1,thrL,7,0.848 ,0.355 ,0.542 ,,\nECK2,noMOPS,7,0.8 , ,0.5 ,,\nECK3,noLocus,7,0.8 ,0.5 ,0.5 ,,\n",
            "Location,Strand,Gene,Synonym\n1..2,+,thrL,b0001\n3..4,+,noMOPS,b0002\n",
        ],
        {},
        "gene,b_number,lb_22h,mops_24h,mops_48h\nthrL,b0001,0.848,0.355,0.542\n",
    ),
    "name_families": (
        ["Location,Strand,Gene,Synonym\n5..9,+,thrB,b0003\n1..4,-,dnaK,b0001\n"],
        {},
        "gene,family\nb0001,dna\nb0003,thr\n",
    ),
    "genome_neighbours": (
        [
            "Location,Strand,Gene,Synonym\n50..59,+,d,b0004\n1..9,+,a,b0001\n10..19,+,b,b0002\n20..29,-,c,b0003\n"
            "100..109,+,e,b0005\n"
        ],
        {"places": 2},
        "gene_a,gene_b,places\nb0001,b0002,1\nb0004,b0005,1\nb0002,b0004,2\n",
    ),
    "gml_edges": (
        [
            'graph [\n  node [\n    id 0\n    label "ymr056c  aac1"\n  ]\n'
            '  node [\n    id 1\n    label "ybr085w"\n  ]\n'
            "  edge [\n    source 1\n    target 0\n  ]\n]\n"
        ],
        {"columns": ["a", "b"]},
        "a,b\nYBR085W,YMR056C\n",
    ),
    "numbered_channels": (
        ["{'4932.Q0010': 0, '4932.YAL001C': 1}", "1\t2\t1.55\n2\t1\t1.55\n", "1\t2\t9.0\n2\t1\t9.0\n"],
        {"channels": ["fusion", "database"]},
        "orf_a,orf_b,fusion,database\nQ0010,YAL001C,155,900\n",
    ),
    "exchanged_rules": (
        [MODEL_OF.format("a", "b or c", "")],
        {"share": 1, "seed": 0},
        MODEL_OF.format("b or c", "a", ""),
    ),
    "copy": (["any\r\n bytes"], {}, "any\r\n bytes"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str, tmp_path: Path) -> None:
    contents, arguments, table = TEXTS[name]
    paths = [tmp_path / str(i) for i in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content.encode())
    assert convert(name, paths, arguments) == table.encode()


def test_a_matrix_of_r(tmp_path: Path) -> None:
    # A gene may stand in it twice; the diagonal and what is below it do not count.
    scores = np.array([[1.0, -1.23456, NAN, 0.5], [7.0, 1.0, 2.0, NAN], [7.0, 7.0, 1.0, -3.0], [7.0, 7.0, 7.0, 1.0]])
    write_rda(tmp_path / "m.rda", {"m": NamedMatrix(scores, ["YBR002W", "YAL001C", "YAL001C", "YCL003C"])})
    table = convert("r_pairs", [tmp_path / "m.rda"], {"variable": "m", "columns": ["a", "b", "score"], "decimals": 4})
    assert table.decode().splitlines() == [
        "a,b,score",
        "YAL001C,YAL001C,2.0",
        "YAL001C,YCL003C,-3.0",
        "YBR002W,YAL001C,-1.2346",
        "YBR002W,YCL003C,0.5",
    ]


def test_a_data_frame_of_r(tmp_path: Path) -> None:
    frame = pd.DataFrame({"query": ["YAL001C", "YBR002W"], "interact": [1.0, 0.0], "recip": [True, False]})
    write_rda(tmp_path / "t.rda", {"pairs": frame.astype({"query": "category"})})
    table = convert("r_table", [tmp_path / "t.rda"], {"variable": "pairs", "integers": ["interact"]})
    assert table == b"query,interact,recip\nYAL001C,1,True\nYBR002W,0,False\n"


def test_pairs_that_data_frames_of_r_name(tmp_path: Path) -> None:
    lethal = pd.DataFrame({"V2": ["YFL039C (Bait)|YBR243C (Hit)", "YBR243C (Bait)|YFL039C (Hit)"]})
    slow = pd.DataFrame(
        {"V2": ["Q0250 (Bait)|YAL001C (Hit)", "YDR363W-A (Bait)|YAL001C (Hit)", "YAL001C (Bait)|YAL001C (Hit)"]}
    )
    paths = [tmp_path / "lethal.rda", tmp_path / "slow.rda"]
    for path, frame in zip(paths, (lethal, slow), strict=True):
        write_rda(path, {path.stem: frame.astype("category")})
    table = convert("r_named_pairs", paths, {"variables": ["lethal", "slow"], "columns": ["V2"]})
    assert table == b"orf_a,orf_b\nYBR243C,YFL039C\nYAL001C,YDR363W-A\n"


def test_every_conversion_is_tested() -> None:
    assert {*TEXTS, "r_named_pairs", "r_pairs", "r_table"} == {*CONVERSIONS, "copy"}
