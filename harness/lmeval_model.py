"""The documented import path of the lm-eval model class: importing it registers the model "kvprune"."""

from harness.lmeval.model import KvpruneLM as KvpruneLM
