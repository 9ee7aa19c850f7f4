"""Readers of the quantisation that a checkpoint declares, one small file for each `quant_method`."""
