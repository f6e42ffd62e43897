# Extraction: one batch of cells, one model load. A batch is named by its content, so it never changes once it is there.


rule extract:
    input:
        unpack(POISE.batch_inputs),
    output:
        responses=str(paths.RESPONSES / "{model}" / "{batch}" / "responses.parquet"),
        index=str(paths.RESPONSES / "{model}" / "{batch}" / "index.parquet"),
    log:
        "logs/extract/{model}/{batch}.log",
    benchmark:
        "logs/extract/{model}/{batch}.tsv"
    wildcard_constraints:
        batch=POISE.open_batches(),
    # With `--sdm conda` in an environment of its own, for nodes that alone have vLLM; otherwise in the controller's.
    conda:
        "../envs/vllm.yaml"
    # Two extractions never share a GPU, nor all cores of a CPU, by accident. `poise extract` itself waits for its
    # turn too, as other runs may be on this machine. What a cluster gives is in workflow/profiles.
    threads: POISE.extract_threads
    resources:
        mem_mb=4000,
        runtime=POISE.extract_minutes,
        gpu=POISE.extract_gpus,
        server=POISE.extract_servers,
    shell:
        "python -m poise extract --batch {wildcards.batch} --threads {threads} --log {log}"
