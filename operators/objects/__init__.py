"""What the API objects of emugpu and Kubernetes are: typed models that parse, validate and answer questions."""
