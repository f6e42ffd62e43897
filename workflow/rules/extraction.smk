# Extraction: one batch of cells, one model load. A batch is named by its content, so it never changes once it is there.


rule extract:
    input:
        POISE.batch_inputs,
    output:
        responses=str(paths.RESPONSES / "{model}" / "{batch}" / "responses.parquet"),
        index=str(paths.RESPONSES / "{model}" / "{batch}" / "index.parquet"),
    log:
        "logs/extract/{model}/{batch}.log",
    benchmark:
        "logs/extract/{model}/{batch}.tsv"
    # All cores: two extractions never share a CPU by accident.
    threads: os.cpu_count()
    resources:
        mem_mb=4000,
    shell:
        "poise extract --batch {wildcards.batch} --threads {threads} --log {log}"
