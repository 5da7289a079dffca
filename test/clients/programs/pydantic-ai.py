"""pydantic-ai: typed answers by a forced tool and by a schema, and tools of its own."""
import json
import os
from typing import Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class City(BaseModel):
    city: str = Field(max_length=20)
    size: Literal["small", "large"]


model = OpenAIChatModel("demo-text", provider=OpenAIProvider(base_url=os.environ["BASE_URL"], api_key="none"))
settings = {"temperature": 0.0, "max_tokens": 200, "openai_reasoning_effort": "none"}
found = {}
for name, kind in {"tool": City, "native": NativeOutput(City)}.items():
    answer = Agent(model, output_type=kind, model_settings=settings).run_sync("Tell me of Rome.")
    found[name] = answer.output.model_dump()

asked = []
agent = Agent(model, model_settings=settings)


@agent.tool_plain
def get_weather(city: str) -> str:
    """Get the weather in a city."""
    asked.append(city)
    return "sunny"


said = agent.run_sync("What is the weather in Rome?")
print(json.dumps({**found, "asked": asked, "said": said.output}))
