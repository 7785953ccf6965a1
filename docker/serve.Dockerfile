# An environment behind OpenEnv's protocol. From the root of the checkout:
#
#   docker build -f docker/serve.Dockerfile -t agentgym-serve .
#   docker run -p 8000:8000 -e AGENTGYM_TOKEN=choose-one agentgym-serve --env WebShop-v0
#
# Inside a container the server listens on every interface, so it wants a token.
FROM python:3.12-slim
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY agentgym agentgym
COPY envs envs
COPY adapters adapters
COPY trainers trainers
RUN pip install --no-cache-dir '.[serve]' && rm -rf /src && useradd --create-home agent
USER agent
WORKDIR /home/agent
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=5)"]
ENTRYPOINT ["python", "-m", "agentgym", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["--env", "WebShop-v0"]
